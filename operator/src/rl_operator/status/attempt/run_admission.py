"""Admission: of a run at a runtime with `limits.maxActiveRuns`, and of its pod at a scheduling gate (Kueue's, or any).

The rule of a runtime. A run holds a slot from its start until it is finished or Stopped, also between two attempts. A
run that is new, or that was stopped and is resumed, starts when the held slots and the runs that wait before it are
together fewer than the limit. Runs wait in order of priority, then age. A run that holds a slot never loses it to the
queue: not when the limit is lowered, and not to a higher priority. A waiting run has `status.queue`: that is the only
state, so that a restarted operator continues with the same queue.

A namespace may have a share of the runtime (`limits.maxActiveRunsPerNamespace`). Of a namespace's waiting runs, those
that its share has no room for are waited for by nobody else: its backlog holds up no other namespace.

A run whose pod cannot be created (a quota, an admission rule, ...) gives its slot back after GIVES_BACK_AFTER:
`status.queue.gaveBack`. Nobody waits for it. When a slot is free, at most every RETRY_AFTER, it takes one and tries
again. It does so in the status first: the limit holds also if this process dies before it knows whether there is a pod.

The gate. Kueue gates a pod by its label and lifts the gate when its queue has room. The wait is not the run's fault:
the start deadline begins when the gate is lifted, and a gated pod that someone deletes does not count as an attempt.
Nor is it the fault of others: at a runtime with slots such a pod has a gate of ours, too. If Kueue does not admit it
for GIVES_BACK_AFTER, its run gives the slot back and the pod keeps its place at Kueue. Once it is admitted the run
waits for a slot like any other, and our gate is lifted when it has one.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Final

from rl_operator.api.names import SLOT_GATE
from rl_operator.api.status_fields import SUSPENDED_PHASES, QueueStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import Assessment, QueuePosition, View
from rl_operator.status.observed.observation import PodObservation, format_time, parse_time
from rl_operator.status.text.phase_table import Situation
from rl_operator.status.text.sentences import joined

QUEUED = "Queued"
EXACT_POSITIONS = 10
"""Beyond this, positions are rounded: one end in front must not rewrite the status of thousands."""

GIVES_BACK_AFTER: Final = timedelta(seconds=60)
RETRY_AFTER: Final = timedelta(seconds=30)

Order = tuple[int, str, str, str]
"""Sorts a runtime's queue: negated priority, creation, name, namespace. Creation is known to the second."""


def order_of(run: TrainingRun, most_priority: int) -> Order:
    """`most_priority`: the runtime's `limits.maxPriority`. More is refused, except of a run that started before."""
    metadata = run.metadata
    return (
        -min(run.spec.priority, most_priority),
        metadata.creation_timestamp or "",
        metadata.name,
        metadata.namespace,
    )


def holds_slot(run: TrainingRun) -> bool:
    status = run.status
    started = status.attempt is not None and not status.finished and status.phase not in SUSPENDED_PHASES
    return started and status.queue is None


def waits_in_queue(run: TrainingRun) -> bool:
    """Whether others may have to wait for it: it was found to be waiting, and nothing has ended that since."""
    status = run.status
    wanted = not run.spec.suspend and run.metadata.deletion_timestamp is None
    return status.queue is not None and wanted and not status.finished


def gave_slot_back(run: TrainingRun) -> bool:
    """Whether it waits in the middle of an attempt, whose pod could not be created or was not admitted."""
    return waits_in_queue(run) and run.status.queue is not None and run.status.queue.gave_back is not None


def has_room(position: QueuePosition) -> bool:
    return position.active + position.before < position.limit


def must_wait(view: View) -> bool:
    return view.queue_position is not None and not holds_slot(view.run) and not has_room(view.queue_position)


def queued(run: TrainingRun, position: QueuePosition) -> Assessment:
    runtime, number = run.spec.runtime, position.before + 1
    about = "about " if number > EXACT_POSITIONS else ""
    held = f"{position.active} of {position.limit} runs active"
    if position.limit == 0:
        held = "its limits.maxActiveRuns is 0: no run starts until an administrator raises it"
    of = ""
    if position.namespace is not None:
        of = f" of namespace {position.namespace!r}"
        held = f"{position.active} active of the {position.limit} that a namespace may have there"
    sentence = f"Queued: position {about}{shown_position(number)}{of} at runtime {runtime!r} ({held})."
    return Assessment(Situation.WAITING, QUEUED, sentence, queue=queue_place(position))


def queue_place(position: QueuePosition, gave_back: str | None = None) -> QueueStatus:
    place, share_of = shown_position(position.before + 1), position.namespace
    return QueueStatus(
        place=place, active=position.active, limit=position.limit, namespace=share_of, gave_back=gave_back
    )


def next_try(run: TrainingRun) -> datetime | None:
    """When to try again to create the pod of a run that gave its slot back; None: it did not."""
    gave_back = run.status.queue.gave_back if gave_slot_back(run) and run.status.queue else None
    return parse_time(gave_back) + RETRY_AFTER if gave_back else None


def may_try_again(view: View) -> bool:
    """Always, of a run that holds a slot."""
    due = next_try(view.run)
    return not must_wait(view) and (due is None or due <= view.now)


def without_pod(view: View) -> Assessment | None:
    """Of a run that has had no pod for so long that others get its slot; None: it has not."""
    run, position, began = view.run, view.queue_position, view.run.status.attempt_start_time
    if position is None:
        return None
    if waits_in_queue(run) and (before := run.status.queue):
        place = queue_place(position, before.gave_back or format_time(view.now))
        if must_wait(view):
            queue = queued(run, position)
            gave = f"It gave its slot back at {place.gave_back}: its pod could not start"
            return replace(queue, message=joined(queue.message, gave), queue=place)
        found = run.status.condition("Reconciling")
        return Assessment(
            Situation.WAITING, found.reason if found else QUEUED, run.status.message or QUEUED, queue=place
        )
    if view.trouble is None or began is None or view.now < parse_time(began) + GIVES_BACK_AFTER:
        return None
    reason, said = view.trouble
    now = format_time(view.now)
    gave = f"The run gave its slot at runtime {run.spec.runtime!r} back at {now}: it starts when it can"
    return Assessment(Situation.WAITING, reason, joined(gave, said), queue=queue_place(position, now))


def shown_position(position: int) -> int:
    """Exact up to EXACT_POSITIONS, beyond that rounded to one significant digit, half up."""
    if position <= EXACT_POSITIONS:
        return position
    unit = 10 ** (len(str(position)) - 1)
    return int((position + unit // 2) // unit * unit)


def positions_with_news(length: int, *, moved_up: bool) -> Iterator[int]:
    """The positions, in a queue of that length, whose displayed form changes after every run has moved by one."""
    return takewhile(lambda position: position <= length, _positions_with_news(len(str(length)), moved_up=moved_up))


@lru_cache
def _positions_with_news(digits: int, *, moved_up: bool) -> tuple[int, ...]:
    """With at most that many digits: the exact ones, and the nine of each power of ten at which rounding changes."""
    rounded = {d * 10**n + 10**n // 2 + side for n in range(1, digits) for d in range(1, 10) for side in (-1, 0)}
    before = 1 if moved_up else -1
    candidates = sorted({*range(1, EXACT_POSITIONS + 2), *rounded})
    return tuple(position for position in candidates if _reads(position) != _reads(position + before))


def _reads(position: int) -> tuple[int, bool]:
    return shown_position(position), position > EXACT_POSITIONS


GATED = "Gated"


def gated_detail(view: View) -> tuple[str, str] | None:
    """Reason and sentence of a run whose pod is gated."""
    pod = view.pod
    if pod is None or not pod.gates:
        return None
    if pod.deleting:
        return GATED, f"Pod {pod.name} was deleted before it was admitted: it is created again."
    if awaits_slot(pod):
        line = queued(view.run, view.queue_position).message if view.queue_position and must_wait(view) else ""
        return GATED, joined(f"Pod {pod.name} is admitted and starts when its run holds a slot", line)
    queue, says = pod.queue, f"kubectl -n {pod.namespace} get workloads says why it waits"
    who = f"Kueue admits it to queue {queue!r}: {says}" if queue else "the controller that set the gate removes it"
    gave = f"Its run gave its slot at runtime {view.run.spec.runtime!r} back meanwhile" if place_of_gated(view) else ""
    return GATED, joined(f"Waiting for admission: pod {pod.name} has a scheduling gate; {who}", gave)


def awaits_slot(pod: PodObservation) -> bool:
    """Whether nothing but our gate keeps it from starting."""
    return pod.gates == (SLOT_GATE,)


def admission_due(view: View) -> datetime | None:
    """When its run gives the slot back if the pod is not admitted before; None: it is not at a gate of ours."""
    pod = view.pod
    gated = pod is not None and SLOT_GATE in pod.gates and not awaits_slot(pod)
    return view.moved(pod.created) + GIVES_BACK_AFTER if pod and gated else None


def place_of_gated(view: View) -> QueueStatus | None:
    """Of a run that holds no slot though it has a pod: at its own place in the queue once that is admitted."""
    before, position, due = view.run.status.queue, view.queue_position, admission_due(view)
    if position is None or view.pod is None:
        return None
    if awaits_slot(view.pod):
        return queue_place(position) if before else None
    if due is None:
        return None
    gave_back = before.gave_back if before else None
    return queue_place(position, gave_back or format_time(view.now)) if gave_back or due <= view.now else None


def deleted_while_gated(view: View) -> bool:
    """Whether the pod is being deleted before it was admitted. Unless the run itself is to end, it is released and
    created again, as the same attempt.
    """
    return view.pod is not None and bool(view.pod.gates) and view.pod.deleting


def admitted_time(view: View) -> str | None:
    """`status.admittedTime`: when the attempt's pod was first seen without its gate."""
    known, before = view.run.status.admitted_time, view.run.status.condition("Reconciling")
    if view.pod is not None and view.pod.gates:  # one that was deleted is gated again
        return None
    if known or view.pod is None:
        return known
    return format_time(view.now) if before and before.reason == GATED else None
