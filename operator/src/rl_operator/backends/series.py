"""The reward curve of a run that its ConfigMap keeps."""

from typing import TYPE_CHECKING

from rl_operator.backends.backend import BackEnd
from rl_operator.errors import OperatorError

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun


def kept_rewards(run: "TrainingRun", backend: BackEnd) -> list[float]:
    """The kept series; empty when it is lost, not this run's, or not for the caller to read."""
    from rl_operator.render.series import stored_series
    from rl_operator.status.series import read_points, rewards

    if run.status.history_name is None:
        return []
    try:
        found = backend.read("ConfigMap", run.metadata.namespace, run.status.history_name)
    except OperatorError:
        return []
    owners = found["metadata"].get("ownerReferences", ()) if found else ()
    ours = any(owner["uid"] == run.metadata.uid for owner in owners)
    return rewards(read_points(stored_series(found))) if found and ours else []
