"""What a follower shows of a run: one value, as a plain line or as a live panel.

The live panel of a run, for terminals.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rl_operator.cli.printing import duration, interval, sparkline

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun

CURVE_WIDTH = 40


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

    def line(self) -> str:
        """At most CURVE_WIDTH points, evenly spaced."""
        values = [self.points[step] for step in sorted(self.points)]
        stride = max(1, -(-len(values) // CURVE_WIDTH))
        return sparkline(values[::stride])


def plain_line(run: "TrainingRun") -> str:
    """One line that changes whenever something worth reading changes."""
    status = run.status
    if status.phase != "Running" or status.progress is None:
        return f"{status.phase or 'Pending':<9} {status.message or ''}".rstrip()
    parts = [f"{'Running':<9} step {status.progress.step}/{status.progress.total_steps}"]
    if status.metrics and status.metrics.reward_mean is not None:
        parts.append(f"reward {status.metrics.reward_mean:.3f}")
    if status.metrics and status.metrics.eval_accuracy is not None:
        parts.append(f"held-out {held_out(run)}")
    if left := time_left(run):
        parts.append(left)
    return "   ".join(parts)


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


STYLES = {
    "Running": "green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Stopping": "yellow",
    "Stopped": "yellow",
}


def time_left(run: "TrainingRun") -> str:
    """The steps' time, and whether the final evaluation follows; empty if it is not known."""
    progress, metrics = run.status.progress, run.status.metrics
    if progress is None or not progress.eta_seconds:
        return ""
    evaluates = metrics is not None and metrics.eval_accuracy is not None
    return f"{duration(progress.eta_seconds)} left{' + evaluation' if evaluates else ''}"


def panel(run: "TrainingRun", curve: Curve, label: str) -> RenderableType:
    """Phase, steps as a bar, reward with its curve, held-out accuracy, and what happens now: within 60 columns."""
    status, phase = run.status, run.status.phase or "Pending"
    rows: list[RenderableType] = [
        Text.assemble((run.metadata.name, "bold"), "  ", (phase, STYLES.get(phase, "cyan")), ("  " + label, "dim"))
    ]
    if progress := status.progress:
        bar = ProgressBar(progress.total_steps, progress.step, width=32, complete_style="green", finished_style="green")
        rows.append(_row("step", bar, f"{progress.step}/{progress.total_steps}"))
        pace = f"{progress.seconds_per_step:.2f} s per step" if progress.seconds_per_step else ""
        if line := ", ".join(filter(None, (pace, time_left(run)))):
            rows.append(_row("", line))
    if status.metrics and status.metrics.reward_mean is not None:
        rows.append(_row("reward", Text(curve.line(), style="green"), f"{status.metrics.reward_mean:.3f}"))
    if status.metrics and status.metrics.eval_accuracy is not None:
        rows += [_row("held-out", held_out(run), "now"), _row("", baseline(run), "before training")]
    return Group(*rows, Text(status.message or "", style="dim"))


def _row(name: str, *cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_column(width=8)
    row.add_row(name, *cells)
    return row
