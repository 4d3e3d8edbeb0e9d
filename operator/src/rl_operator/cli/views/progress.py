"""What a follower prints of a run: a plain line, and its curve. What others wrote into it is cleaned."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rl_operator.cli.printing import columns, one_line, program, sparkline
from rl_operator.status.text.figure_text import interval
from rl_operator.targets.runs.run_text import held_out_rows, time_left

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun

CURVE_WIDTH = 40
HELD_OUT_COLUMNS = ("FIGURE", "VALUE", "95 % INTERVAL", "N")


@dataclass
class Curve:
    """The reward at each step that was seen: the status alone keeps only ten samples."""

    points: dict[int, float] = field(default_factory=dict)

    def add(self, run: "TrainingRun") -> None:
        status = run.status
        for sample in status.history:
            self.points.setdefault(sample.step, sample.reward_mean)
        if status.progress and status.metrics and status.metrics.reward_mean is not None:
            self.points[status.progress.step] = status.metrics.reward_mean

    def line(self, width: int = CURVE_WIDTH) -> str:
        """At most `width` points, evenly spaced."""
        values = [self.points[step] for step in sorted(self.points)]
        stride = max(1, -(-len(values) // width))
        return sparkline(values[::stride])


def plain_line(run: "TrainingRun") -> str:
    """What happens, and how long it still takes."""
    return "   ".join(filter(None, (news(run), time_left(run))))


def news(run: "TrainingRun") -> str:
    """One line that changes whenever something worth reading changes: that time passes is not."""
    status = run.status
    if status.phase != "Running" or status.progress is None:
        return f"{status.phase or 'Pending':<9} {one_line(status.message or '')}".rstrip()
    parts = [f"{'Running':<9} step {status.progress.step}/{status.progress.total_steps}"]
    if status.metrics and status.metrics.reward_mean is not None:
        parts.append(f"reward {status.metrics.reward_mean:.3f}")
    if status.metrics and status.metrics.eval_accuracy is not None:
        parts.append(f"held-out {held_out(run)}")
    return "   ".join(parts)


def held_out_table(run: "TrainingRun") -> Iterator[str]:
    """If the newest evaluation has more than the one figure."""
    if told := run.status.evaluation:
        more = (
            f"; {program()} rollouts {run.metadata.name} --step {told.step} has {told.more} more" if told.more else ""
        )
        yield f"  evaluated after step {told.step}{more}"
        yield from (f"    {line}" for line in columns(HELD_OUT_COLUMNS, held_out_rows(told)).splitlines())


def held_out(run: "TrainingRun") -> str:
    """The newest held-out accuracy with its interval."""
    metrics = run.status.metrics
    if metrics is None or metrics.eval_accuracy is None:
        return "-"
    return interval(metrics.eval_accuracy, metrics.eval_accuracy_low, metrics.eval_accuracy_high)


def baseline(run: "TrainingRun") -> str:
    """The held-out accuracy before training, with its interval."""
    metrics = run.status.metrics
    if metrics is None or metrics.baseline_accuracy is None:
        return "-"
    low, high = metrics.baseline_accuracy_low, metrics.baseline_accuracy_high
    return interval(metrics.baseline_accuracy, low, high)
