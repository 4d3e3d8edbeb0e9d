"""The live panel of a run, for terminals."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rl_operator.cli.printing import duration
from rl_operator.cli.progress import Curve, baseline, held_out

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun

STYLES = {
    "Running": "green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Stopping": "yellow",
    "Stopped": "yellow",
}


def panel(run: "TrainingRun", curve: Curve, label: str) -> RenderableType:
    """Phase, steps as a bar, reward with its curve, held-out accuracy, and what happens now."""
    status, phase = run.status, run.status.phase or "Pending"
    head = Text.assemble((run.metadata.name, "bold"), "  ", (phase, STYLES.get(phase, "cyan")), ("  " + label, "dim"))
    rows = Table.grid(padding=(0, 2))
    if progress := status.progress:
        pace = f"{progress.seconds_per_step:.2f} s per step" if progress.seconds_per_step else ""
        left = f"{duration(progress.eta_seconds)} left" if progress.eta_seconds else ""
        bar = ProgressBar(total=progress.total_steps, completed=progress.step, width=32)
        rows.add_row("step", f"{progress.step}/{progress.total_steps}", bar, pace, left)
    if status.metrics and status.metrics.reward_mean is not None:
        rows.add_row("reward", f"{status.metrics.reward_mean:.3f}", Text(curve.line(), style="green"))
    if status.metrics and status.metrics.eval_accuracy is not None:
        rows.add_row("held-out", "", f"{baseline(run)}  now {held_out(run)}")
    return Group(head, rows, Text(status.message or "", style="dim"))
