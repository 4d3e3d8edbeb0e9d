"""The reward curve of a run in one line: of its kept series where there is one, else of the samples in its status."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rl_operator.cli.printing import sparkline
from rl_operator.cli.progress import CURVE_WIDTH
from rl_operator.targets.kept_history import kept_rewards
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun


def reward_line(run: "TrainingRun", target: Target) -> Iterator[str]:
    """The first reward, the curve and the last reward; no line when no reward is known."""
    rewards = kept_rewards(run, target) or [sample.reward_mean for sample in run.status.history]
    if rewards:
        stride = max(1, -(-len(rewards) // CURVE_WIDTH))
        yield f"  reward     {rewards[0]:.3f} {sparkline(rewards[::stride])} {rewards[-1]:.3f}"
