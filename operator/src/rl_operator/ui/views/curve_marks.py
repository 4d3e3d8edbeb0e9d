"""What happened to a run, as marks on the axis of its curves and as a list. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rl_operator.api.training_run import TrainingRun
from rl_operator.ui.views.page_text import short

MOST_EVENTS: Final = 40
LONGEST_TEXT: Final = 400

_EVENT: Final = re.compile(r"(?P<time>\S+)  (?P<kind>\S+) +(?P<reason>\S+) +(?P<message>.*)", re.DOTALL)

ROUTINE: Final = frozenset({"Accepted", "Ending", "PodStarting", "Starting", "Succeeded", "Training"})
"""Reasons of events that say what the curves and the list of attempts show anyway."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    time: str
    kind: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Mark:
    """`sign`: a letter or two, on the axis. `step` and `time` (seconds since the epoch): at least one is known."""

    sign: str
    text: str
    step: int | None = None
    time: float | None = None

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


def run_events(lines: Iterable[str]) -> list[RunEvent]:
    """As a target gives them, with what is hidden in their text made visible."""
    found = (_EVENT.fullmatch(line) for line in lines)
    return [RunEvent(*(short(part, LONGEST_TEXT) for part in match.groups())) for match in found if match]


def marks_of(run: TrainingRun, events: Sequence[RunEvent]) -> list[Mark]:
    """In the order of the list: attempts, what was saved, deadlines, and what came from outside."""
    return [*_attempts(run), *_saved(run), *_deadlines(run), *_events(events)]


def _attempts(run: TrainingRun) -> Iterator[Mark]:
    status = run.status
    for each in status.attempts:
        if each.attempt > 1:
            began = f"attempt {each.attempt} began from step {each.from_step}"
            yield Mark(f"A{each.attempt}", began, each.from_step, seconds_of(each.started))
        if each.ended and not (status.finished and each.attempt == status.attempt):
            ended = (
                f"attempt {each.attempt} ended after step {each.steps}: {short(each.reason or 'no reason is known')}"
            )
            yield Mark(f"E{each.attempt}", ended, each.steps, seconds_of(each.ended))
    known = {each.attempt for each in status.attempts}
    if status.attempt and status.attempt > 1 and status.attempt not in known and status.progress:
        step = status.progress.from_step
        yield Mark(f"A{status.attempt}", f"attempt {status.attempt} began from step {step}", step)


def _saved(run: TrainingRun) -> Iterator[Mark]:
    status = run.status
    if status.checkpoint:
        yield Mark("C", f"newest checkpoint: step {status.checkpoint.step}", status.checkpoint.step)
    if status.best:
        figure = f"{status.best.eval_accuracy:.3f}"
        yield Mark("B", f"best weights: step {status.best.step}, held-out {figure}", status.best.step)


def _deadlines(run: TrainingRun) -> Iterator[Mark]:
    """Only that of the whole run is at a known time."""
    started, longest = run.status.start_time, run.spec.active_deadline_seconds
    if started and longest is not None and not run.status.finished:
        end = datetime.fromisoformat(started) + timedelta(seconds=longest)
        text = f"deadline of the run: {end.isoformat(timespec='seconds')}, {longest} s after its start"
        yield Mark("D", text, time=end.timestamp())


def _events(events: Sequence[RunEvent]) -> Iterator[Mark]:
    told = [event for event in events if event.kind == "Warning" or event.reason not in ROUTINE]
    for event in told[-MOST_EVENTS:]:
        time = seconds_of(event.time)
        if time is not None:
            sign = "!" if event.kind == "Warning" else "·"
            yield Mark(sign, f"{event.reason}: {event.message}", time=time)


def seconds_of(time: str | None) -> float | None:
    """Since the epoch; None: it is not known."""
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except ValueError:
        return None
