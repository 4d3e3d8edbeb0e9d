"""Whether a run came back from a backup."""

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.targets.target import Manifest


def was_restored(run: Manifest) -> bool:
    """Whether the run was started in a former life and waits to be asked again."""
    from rl_operator.api.run import TrainingRun
    from rl_operator.status.restored import is_restored

    return STARTED_AS_ANNOTATION in run["metadata"].get("annotations", {}) and is_restored(
        TrainingRun.model_validate(run)
    )
