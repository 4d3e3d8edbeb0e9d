"""The series of a run that its ConfigMap keeps."""

from typing import TYPE_CHECKING

from rl_operator.errors import OperatorError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.status.observed.history import Point


def kept_points(run: "TrainingRun", target: Target) -> "tuple[Point, ...]":
    """In the order of steps; empty when the series is lost, not this run's, or not for the caller to read."""
    from rl_operator.render.history_map import stored_history
    from rl_operator.status.observed.history import read_points

    if run.status.history_name is None:
        return ()
    try:
        found = target.read("ConfigMap", run.metadata.namespace, run.status.history_name)
    except OperatorError:
        return ()
    owners = found["metadata"].get("ownerReferences", ()) if found else ()
    ours = any(owner["uid"] == run.metadata.uid for owner in owners)
    return read_points(stored_history(found)) if found and ours else ()


def kept_rewards(run: "TrainingRun", target: Target) -> list[float]:
    """The reward curve of it."""
    from rl_operator.status.observed.history import rewards

    return rewards(kept_points(run, target))
