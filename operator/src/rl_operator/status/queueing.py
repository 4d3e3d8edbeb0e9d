"""Who may start at a runtime with `limits.maxActiveRuns`, and what those are told who may not yet.

The rule. A run holds a place from its start until it is finished or Stopped, also between two attempts. A run that is
new, or that was stopped and is to go on, starts when the places that are held, and those who wait before it, are fewer
than the limit. Before others is who has the higher priority, then who is older. Nobody who holds a place ever loses it
to the queue: not when the limit is lowered, and not to a higher priority. Who waits has `status.queue`: that is the
whole memory, so that a restarted operator goes on with the same line.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from rl_operator.api.run import QueueStatus, TrainingRun
from rl_operator.status.table import Situation
from rl_operator.status.view import Assessment, QueuePosition, View

QUEUED = "Queued"
EXACT_PLACES = 10
"""Beyond, places are rounded: one end in front must not rewrite the status of thousands."""

Order = tuple[int, str, str, str]
"""Sorts a runtime's line: negated priority, creation, name, namespace. Creation is known to the second."""


def order_of(run: TrainingRun) -> Order:
    metadata = run.metadata
    return (-run.spec.priority, metadata.creation_timestamp or "", metadata.name, metadata.namespace)


def holds_place(run: TrainingRun) -> bool:
    status = run.status
    started = status.attempt is not None and not status.finished and status.phase != "Stopped"
    return started and status.queue is None


def stands_in_line(run: TrainingRun) -> bool:
    """Whether others may have to wait for it: it was found to be waiting, and nothing has ended that since."""
    status = run.status
    wanted = not run.spec.suspend and run.metadata.deletion_timestamp is None
    return status.queue is not None and wanted and not status.finished


def has_room(line: QueuePosition) -> bool:
    return line.active + line.before < line.limit


def must_wait(view: View) -> bool:
    """Whether a run that is to start has to wait for a place."""
    return view.line is not None and not holds_place(view.run) and not has_room(view.line)


def queued_finding(run: TrainingRun, line: QueuePosition) -> Assessment:
    runtime, place = run.spec.runtime, line.before + 1
    about = "about " if place > EXACT_PLACES else ""
    held = f"{line.active} of {line.limit} runs active"
    if line.limit == 0:
        held = "its limits.maxActiveRuns is 0: no run starts until an administrator raises it"
    sentence = f"Queued: place {about}{shown_place(place)} in line at runtime {runtime!r} ({held})."
    return Assessment(Situation.WAITING, QUEUED, sentence)


def queue_place(line: QueuePosition) -> QueueStatus:
    return QueueStatus(place=shown_place(line.before + 1), active=line.active, limit=line.limit)


def shown_place(place: int) -> int:
    """Exact up to EXACT_PLACES, beyond rounded to one significant digit, halves up."""
    if place <= EXACT_PLACES:
        return place
    unit = 10 ** (len(str(place)) - 1)
    return int((place + unit // 2) // unit * unit)


def places_with_news(length: int, *, moved_up: bool) -> Iterator[int]:
    """Of a line of that length, the places that read otherwise after everybody has moved by one."""
    return takewhile(lambda place: place <= length, _places_with_news(len(str(length)), moved_up=moved_up))


@lru_cache
def _places_with_news(digits: int, *, moved_up: bool) -> tuple[int, ...]:
    """Of at most that many digits: the exact ones, and the nine of each power of ten at which rounding changes."""
    rounded = {d * 10**n + 10**n // 2 + side for n in range(1, digits) for d in range(1, 10) for side in (-1, 0)}
    before = 1 if moved_up else -1
    candidates = sorted({*range(1, EXACT_PLACES + 2), *rounded})
    return tuple(place for place in candidates if _reads(place) != _reads(place + before))


def _reads(place: int) -> tuple[int, bool]:
    return shown_place(place), place > EXACT_PLACES
