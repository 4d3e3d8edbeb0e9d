"""Follow the runs of a sweep: as one ends, the next draft starts."""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rl_operator.cli.printing import one_line
from rl_operator.cli.views.follow import CARE_SECONDS
from rl_operator.errors import GoneError
from rl_operator.status.text.figure_text import interval
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun


def follow_all(target: Target, namespace: str, names: Sequence[str], at_once: int) -> bool:
    """Until all are over: `at_once` of them train at the same time. A line for each that ends.

    Returns whether one failed or was refused.
    """
    drafts, active, over, failed = deque[str](), list[str](), 0, False
    for name in names:
        run = _read(target, namespace, name)
        if run is not None and run.spec.suspend and run.status.start_time is None:
            drafts.append(name)
        else:
            active.append(name)
    cared = time.monotonic()
    while active or drafts:
        for name in [*active]:
            run = _read(target, namespace, name)
            if run is not None and not run.at_rest:
                continue
            active.remove(name)
            over += 1
            failed = failed or run is None or run.is_refused or run.status.phase == "Failed"
            typer.echo(f"{over} of {len(names)}  {_line(name, run)}", err=True)
        while drafts and len(active) < at_once:
            active.append(drafts.popleft())
            with contextlib.suppress(GoneError):  # it was deleted: the next look says so
                target.change_spec(namespace, active[-1], {"suspend": False})
        if time.monotonic() - cared > CARE_SECONDS:
            cared = time.monotonic()
            for name in active:
                target.look_after(namespace, name)
        time.sleep(target.poll_seconds)
    return failed


def _read(target: Target, namespace: str, name: str) -> "TrainingRun | None":
    """None: it was deleted."""
    from rl_operator.api.run import TrainingRun

    manifest = target.run(namespace, name)
    return TrainingRun.model_validate(manifest) if manifest is not None else None


def _line(name: str, run: "TrainingRun | None") -> str:
    if run is None:
        return f"{name}  was deleted"
    metrics = run.status.metrics
    if metrics is None or metrics.eval_accuracy is None:
        return f"{name}  {run.status.phase}: {one_line(run.status.message or '')}"
    figure = interval(metrics.eval_accuracy, metrics.eval_accuracy_low, metrics.eval_accuracy_high)
    return f"{name}  {run.status.phase}  held-out {figure}"
