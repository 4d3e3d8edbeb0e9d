"""The reward curve of a run in one line: of its kept series where there is one, else of the samples in its status."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rl_operator.cli.backend import BackEnd
from rl_operator.cli.printing import sparkline
from rl_operator.cli.progress import CURVE_WIDTH
from rl_operator.errors import OperatorError

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun


def reward_line(run: "TrainingRun", backend: BackEnd) -> Iterator[str]:
    """The first reward, the curve and the last reward; no line when no reward is known."""
    rewards = _series(run, backend) or [sample.reward_mean for sample in run.status.history]
    if rewards:
        stride = max(1, -(-len(rewards) // CURVE_WIDTH))
        yield f"  reward     {rewards[0]:.3f} {sparkline(rewards[::stride])} {rewards[-1]:.3f}"


def _series(run: "TrainingRun", backend: BackEnd) -> list[float]:
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
