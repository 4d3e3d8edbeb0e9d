"""Admission: of a run at a runtime with `limits.maxActiveRuns`, and of its pod at a scheduling gate (Kueue's, or any).

The rule of a runtime. A run holds a slot from its start until it is finished or Stopped, also between two attempts. A
run that is new, or that was stopped and is resumed, starts when the held slots and the runs that wait before it are
together fewer than the limit. Runs wait in order of priority, then age. A run that holds a slot never loses it to the
queue: not when the limit is lowered, and not to a higher priority. A waiting run has `status.queue`: that is the only
state, so that a restarted operator continues with the same queue.

A namespace may have a share of the runtime (`limits.maxActiveRunsPerNamespace`). Of a namespace's waiting runs, those
that its share has no room for are waited for by nobody else: its backlog holds up no other namespace.

A run whose pod cannot be created (a quota, an admission rule, ...) or start gives its slot back after GIVES_BACK_AFTER:
`status.queue.gaveBack`. Nobody waits for it, and it tries on.

The gates. Kueue gates a pod by its label and lifts the gate when its queue has room. The wait is not the run's fault:
the start deadline begins when the gate is lifted, and a gated pod that someone deletes does not count as an attempt.
At a runtime with slots a run's pod has a gate of ours from the beginning. It is lifted when nothing else keeps the pod
from starting and its run holds a slot: one that gave its slot back waits in line for it, like a run that is new. It
takes the slot in its status first: the limit holds also if this process dies before the gate is lifted.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Final

from rl_operator.api.names import SLOT_GATE
from rl_operator.api.status_fields import SUSPENDED_PHASES, QueueStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import Assessment, QueuePosition, View
from rl_operator.status.observed.observation import format_time, parse_time
from rl_operator.status.text.phase_table import Situation
from rl_operator.status.text.sentences import joined

QUEUED = "Queued"
EXACT_POSITIONS = 10
"""Beyond this, positions are rounded: one end in front must not rewrite the status of thousands."""

GIVES_BACK_AFTER: Final = timedelta(seconds=60)

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
    """Whether others may have to wait for it: it was found to be waiting, did not give its slot back, and nothing has
    ended that since.
    """
    status = run.status
    wanted = not run.spec.suspend and run.metadata.deletion_timestamp is None
    return status.queue is not None and status.queue.gave_back is None and wanted and not status.finished


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
    """Reason and sentence of a run whose pod is kept from starting by a gate."""
    pod, runtime = view.pod, view.run.spec.runtime
    if pod is None or not waits_at_gate(view):
        return None
    if pod.deleting:
        return GATED, f"Pod {pod.name} was deleted before it was admitted: it is created again."
    _, trouble = view.trouble or ("", "")
    if pod.gates == (SLOT_GATE,):
        line = queued(view.run, view.queue_position).message if view.queue_position else ""
        return GATED, joined(f"Pod {pod.name} starts when its run holds a slot", trouble or line)
    queue, says = pod.queue, f"kubectl -n {pod.namespace} get workloads says why it waits"
    who = f"Kueue admits it to queue {queue!r}: {says}" if queue else "the controller that set the gate removes it"
    gave = f"Its run gave its slot at runtime {runtime!r} back meanwhile" if place_in_attempt(view) else ""
    return GATED, joined(f"Waiting for admission: pod {pod.name} has a scheduling gate; {who}", gave, trouble)


def is_let_start(view: View) -> bool:
    """Whether nothing but our gate keeps the pod from starting, and its run holds a slot or can have one."""
    return _awaits_slot(view) and not must_wait(view)


def waits_at_gate(view: View) -> bool:
    return view.pod is not None and bool(view.pod.gates) and not is_let_start(view)


def is_without_our_gate(view: View) -> bool:
    """Whether its pod was not admitted for so long that its run should give its slot back, and is from before the
    runtime had slots: made again, it has our gate.
    """
    pod, due = view.pod, gives_back_at(view)
    foreign = pod is not None and bool(pod.gates) and SLOT_GATE not in pod.gates
    return foreign and due is not None and due <= view.now


def gives_back_at(view: View) -> datetime | None:
    """When the run of a pod that cannot start, or could not be created, gives its slot back; None: it keeps it."""
    if view.queue_position is None:
        return None
    if view.pod is not None:
        return view.moved(view.pod.created) + GIVES_BACK_AFTER if view.pod.gates and not _awaits_slot(view) else None
    began = pod_wanted_since(view) if view.trouble else None
    return began + GIVES_BACK_AFTER if began else None


def pod_wanted_since(view: View) -> datetime | None:
    """When the attempt began, or its pod was deleted before it was admitted."""
    moments = (view.run.status.attempt_start_time, admitted_time(view))
    return max((parse_time(moment) for moment in moments if moment), default=None)


def place_in_attempt(view: View) -> QueueStatus | None:
    """`status.queue` of a run in the middle of an attempt that holds no slot. While its pod could start, it waits in
    line; else nobody waits for it (`gaveBack`).
    """
    before, position, due = view.run.status.queue, view.queue_position, gives_back_at(view)
    if position is None or (view.pod is not None and not view.pod.gates):
        return None
    if _awaits_slot(view):
        return queue_place(position) if before else None
    if before is None and (due is None or due > view.now):
        return None
    return queue_place(position, (before and before.gave_back) or format_time(view.now))


def _awaits_slot(view: View) -> bool:
    pod = view.pod
    return pod is not None and pod.gates == (SLOT_GATE,) and not pod.deleting and not view.trouble


def deleted_while_gated(view: View) -> bool:
    """Whether the pod is being deleted before it was admitted. Unless the run itself is to end, it is released and
    created again, as the same attempt.
    """
    return view.pod is not None and bool(view.pod.gates) and view.pod.deleting


def admitted_time(view: View) -> str | None:
    """`status.admittedTime`: when the attempt's pod no longer waited at a gate, or was gone without having started."""
    known, before = view.run.status.admitted_time, view.run.status.condition("Reconciling")
    if waits_at_gate(view):  # one that was deleted is gated again
        return None
    return known or (format_time(view.now) if before and before.reason == GATED else None)
