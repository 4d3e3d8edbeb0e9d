"""The diagram's transitions are the real ones: all reachable states are walked, and nothing else is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import pytest
from tests.unit.rl_operator.status.builders import (
    NOW,
    failed_result,
    make_pod,
    make_run,
    ready,
    result,
    running,
    terminated,
    waiting,
)

from generate.transitions import CREATED, TRANSITIONS, situation_of
from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import QueuePosition, View
from rl_operator.status.derived_status import derive, started
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.phase_and_action import Action, assess, decide
from rl_operator.status.text.phase_table import Situation

REFUSAL = Refusal(code="LockedField", field="spec.trainer.lora_rank", given=8, locked=32, hint="it is locked to 32")
FULL = QueuePosition(limit=2, active=2, before=0)
PENDING = ("CatalogPending", "The environments are being read.")
STOPPED = terminated(0, result(outcome="stopped", stepsTrained=7, samplerPath=None))

PODS: tuple[PodObservation | None, ...] = (
    None,
    make_pod(waiting(), waiting(), waiting(), phase="Pending", node=""),
    make_pod(waiting(), waiting(), waiting(), phase="Pending", node="", deleting=True),
    make_pod(ready(), ready(), running()),
    make_pod(ready(), ready(), ready()),
    make_pod(ready(), ready(), ready(), deleting=True),
    make_pod(ready(), terminated(0, result()), ready()),
    make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded"),
    make_pod(terminated(0), STOPPED, terminated(0), phase="Failed", deleting=True),
    make_pod(terminated(0), terminated(1, failed_result("internal", "bug")), terminated(0), phase="Failed"),
    make_pod(terminated(0), terminated(4, failed_result("backend", "gone")), terminated(0), phase="Failed"),
    make_pod(terminated(0), terminated(2, failed_result("config", "no")), terminated(0), phase="Failed"),
)
"""What may be seen of the current attempt's pod, in any order: what lies between two looks is missed."""

MINUTES = (0, 1, 10**4)
"""Nothing is due, the pause is over, every deadline has passed."""


@dataclass(frozen=True)
class World:
    """What a reconcile observes besides the status."""

    suspend: bool
    pod: PodObservation | None = None
    minutes: int = 0
    refusals: tuple[Refusal, ...] = ()
    pending: tuple[str, str] | None = None
    queue_position: QueuePosition | None = None
    restored: bool = False


def worlds(status: RunStatus) -> Iterator[World]:
    yield World(suspend=False, queue_position=FULL)
    if status.attempt is not None or not status.conditions:  # it has a mark, or was restored without its status
        yield World(suspend=False, restored=True)
    for suspend in (False, True):
        if status.attempt is None:
            yield from (World(suspend), World(suspend, refusals=(REFUSAL,)), World(suspend, pending=PENDING))
            continue
        over = bool(status.attempts) and status.attempts[-1].attempt == status.attempt
        for pod in PODS[:1] if over else filter(partial(may_follow, status), PODS):
            yield from (World(suspend, pod, minutes) for minutes in MINUTES)


def may_follow(status: RunStatus, pod: PodObservation | None) -> bool:
    """Whether what has ended stays ended: nothing but the api is started again within an attempt."""
    ended = {each.name for each in status.containers if each.state == "Terminated"}
    return pod is None or all(each.state == "Terminated" for each in pod.containers if each.name in ended)


def reconciled(status: RunStatus, world: World) -> Iterator[RunStatus]:
    """The statuses that one reconcile writes, in order."""
    spec = {"suspend": world.suspend, "backoffLimit": 1, "activeDeadlineSeconds": 10**5}
    run = TrainingRun.model_validate({**make_run(None, **spec).to_wire(), "status": status.to_wire()})
    if world.restored:
        marks = {STARTED_AS_ANNOTATION: f"{run.metadata.name}.former"}
        run = run.with_changes(metadata=run.metadata.with_changes(annotations=marks))
    now = NOW + timedelta(minutes=world.minutes)
    view = View(
        run, now, 10.0, world.pod, refusals=world.refusals, pending=world.pending, queue_position=world.queue_position
    )
    if decide(view) is Action.START:
        attempt = (status.attempt or 0) + 1
        freed = started(view, attempt=attempt, pod_name="p", config_map_name="c", config_hash="h")
        yield freed
        view = replace(view, run=run.with_changes(status=freed), pod=None)
    yield derive(view, assess(view))


def walked() -> dict[tuple[Situation | None, Situation], str]:
    """Every transition between situations that any order of events leads to, and its reason."""
    seen, todo, steps = set(), [RunStatus()], dict[tuple[Situation | None, Situation], str]()
    while todo:
        status = todo.pop()
        for world in worlds(status):
            before = situation_of(status) if status.conditions else CREATED
            for after in reconciled(status, world):
                reached = situation_of(after)
                if reached is not before:
                    steps.setdefault((before, reached), after.message or "")
                before = reached
                if not after.finished and gist(after) not in seen:
                    seen.add(gist(after))
                    todo.append(after)
    return steps


def gist(status: RunStatus) -> tuple[object, ...]:
    """The part of a status that decides what comes next, so that the walk ends."""
    over = bool(status.attempts) and status.attempts[-1].attempt == status.attempt
    reasons = tuple(condition.reason for condition in status.conditions)
    ended = frozenset(container.name for container in status.containers if container.state == "Terminated")
    return reasons, ended, status.attempt is None, over, len(status.attempts), status.failed_attempts


def test_the_diagram_shows_what_can_happen_and_nothing_else() -> None:
    steps = walked()
    missing = {
        f"{before} -> {after}": why for (before, after), why in steps.items() if (before, after) not in TRANSITIONS
    }
    assert missing == {}, "put it into transitions.py"
    assert set(TRANSITIONS) - set(steps) == set(), "this cannot happen: take it out of transitions.py"


def test_a_status_that_was_not_derived_is_rejected() -> None:
    with pytest.raises(ValueError, match="no situation has phase None"):
        situation_of(RunStatus(start_time=format_time(NOW)))
