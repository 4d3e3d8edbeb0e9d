"""What a run's page says: what happens, what to do, how far it is, its weights, attempts and conditions; and what
happened, as marks on the axis of its curves and as a list. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rl_contract.trainer_messages import EvaluatedFigures
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import Attempt, Condition
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.text.figure_text import duration, money_spent
from rl_operator.status.text.sentences import sentence
from rl_operator.targets.runs.run_text import best_sentence, held_out_rows, notable_best, time_left
from rl_operator.ui.views.page_text import short, short_value

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
        figure = f"{status.best.held_out.value:.3f}"
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


@dataclass(frozen=True, slots=True)
class RunHead:
    phase: str
    sentence: str
    refusals: tuple[Refusal, ...]
    """As they are shown: values are texts, empty where they do not apply."""

    failure: str
    failed_container: str
    step: int | None
    total_steps: int | None
    left: str
    facts: tuple[tuple[str, str], ...]
    tracker_url: str
    """On W&B; empty: there is none."""

    held_out: tuple[tuple[str, str, str, str], ...]
    """Name, figure, 95 % interval and samples, if the newest evaluation, which is `evaluated`, has several figures."""

    evaluated: EvaluatedFigures | None
    worse: str
    """That the last weights are worse than the best ones."""


def run_head(run: TrainingRun, now: datetime) -> RunHead:
    status, progress, told = run.status, run.status.progress, run.status.evaluation
    failure = status.failure if status.phase != "Succeeded" else None
    url = (status.wandb.url if status.wandb else None) or ""
    return RunHead(
        phase=status.phase or "Pending",
        sentence=short(status.message or "Nobody has looked at this run yet."),
        refusals=tuple(_refusals(run)),
        failure=short(f"{failure.reason}: {failure.message}".rstrip(": ")) if failure else "",
        failed_container=short(failure.container or "trainer", 64) if failure and status.pod_name else "",
        step=progress.step if progress else None,
        total_steps=progress.total_steps if progress else None,
        left="" if status.finished else time_left(run),
        facts=tuple(_facts(run, now)),
        tracker_url=short(url) if url.startswith(("https://", "http://")) else "",
        held_out=tuple((short(name, 64), value, ends, n) for name, value, ends, n in held_out_rows(told))
        if told
        else (),
        evaluated=told,
        worse=best_sentence(run) if notable_best(run) else "",
    )


def _refusals(run: TrainingRun) -> Iterator[Refusal]:
    for each in run.status.refusals:
        yield Refusal(
            code=each.code,
            field=short(each.field),
            given="" if each.given is None else short_value(each.given),
            allowed="; ".join(_allowed(each)),
            hint=sentence(short(each.hint)) if each.hint else "",
        )


def _allowed(refusal: Refusal) -> Iterator[str]:
    """What the hint does not say."""
    if refusal.allowed is not None:
        text = short_value(refusal.allowed)
        if text not in refusal.hint:
            yield text
    if refusal.locked is not None:
        yield f"locked to {short_value(refusal.locked)}"


def _facts(run: TrainingRun, now: datetime) -> Iterator[tuple[str, str]]:
    """Name and value, those that are known."""
    yield "environment", short(run.spec.environment)
    yield "runtime", short(run.spec.runtime)
    yield from _times(run, now)
    if run.status.metrics:
        yield from ((label, short(text)) for label, text in run.status.metrics.texts("page").values())
    if run.status.items:
        yield "items", short(run.status.items.text)
    if origin := run.status.started_from:
        yield "began with", short(f"the weights of {origin.run} after step {origin.step}")
    yield from _pods(run)


def _times(run: TrainingRun, now: datetime) -> Iterator[tuple[str, str]]:
    status = run.status
    if queue := status.queue:
        yield "queue", f"place {queue.place}; {queue.active} of {queue.limit} runs active"
    if status.start_time:
        end = datetime.fromisoformat(status.completion_time) if status.completion_time else now
        took = duration((end - datetime.fromisoformat(status.start_time)).total_seconds())
        yield ("took" if status.finished else "since the start"), took
    if status.progress and status.progress.seconds_per_step and not status.finished:
        yield "pace", f"{status.progress.seconds_per_step:.2f} s per step"
    if status.cost:
        yield "cost", money_spent(status.cost.amount, status.cost.currency, status.cost.budget)


def _pods(run: TrainingRun) -> Iterator[tuple[str, str]]:
    status = run.status
    if status.attempt and status.attempt > 1:
        yield "attempt", str(status.attempt)
    if (apart := status.environments) and not status.finished:
        failed = f", {apart.failures} failed" if apart.failures else ""
        yield "environments", f"{apart.ready} of {apart.desired} ready{failed}"
    if (sandboxes := status.sandboxes) and not status.finished:
        yield "sandboxes", f"{sandboxes.ready} of {sandboxes.desired} ready"
    if status.wandb and status.wandb.state and status.wandb.state.startswith(("offline", "failed")):
        yield "W&B", short(status.wandb.state)


@dataclass(frozen=True, slots=True)
class WeightsRow:
    what: str
    path: str
    use: str
    expires: str


def weights_rows(run: TrainingRun) -> Iterator[WeightsRow]:
    status = run.status
    if weights := status.weights:
        until = short(weights.expires_at or "")
        yield WeightsRow("final", short(weights.sampler_path), "sample from", until)
        if weights.state_path:
            yield WeightsRow("final", short(weights.state_path), "train on from", until)
    if best := status.best:
        name, until = f"best, step {best.step}", short(best.expires_at or "")
        yield WeightsRow(name, short(best.sampler_path), "sample from (--best)", until)
        yield WeightsRow(name, short(best.state_path), "train on from", until)
    if checkpoint := status.checkpoint:
        name, until = f"checkpoint, step {checkpoint.step}", short(checkpoint.expires_at or "")
        yield WeightsRow(name, short(checkpoint.state_path), "train on from", until)


def attempt_rows(run: TrainingRun) -> Iterator[Attempt]:
    """With texts as they are shown."""
    for each in run.status.attempts:
        pod, ended, reason = map(short, (each.pod, each.ended or "–", each.reason or "–"))
        yield each.with_changes(pod=pod, ended=ended, reason=reason)


def condition_rows(run: TrainingRun) -> Iterator[Condition]:
    """With texts as they are shown."""
    for each in run.status.conditions:
        texts = {name: short(getattr(each, name)) for name in ("type", "last_transition_time", "reason", "message")}
        yield each.with_changes(**texts)
