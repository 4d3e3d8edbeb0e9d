"""Kubernetes Events about our objects: written in the background of the reconcile; repeated ones are counted."""

import asyncio
import hashlib
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from rl_operator.api.model import ObjectMeta
from rl_operator.api.names import API_VERSION, GROUP, MANAGER, RUNTIME_KIND
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.clock import micro_time
from rl_operator.cluster.api_server.resources import EVENTS
from rl_operator.operator_errors import ConflictError, GoneError, OperatorError
from rl_operator.telemetry import EVENTS_DROPPED

log = logging.getLogger(__name__)

QUEUE_SIZE = 10_000
PAUSE_SECONDS = 0.02
BUSY_PAUSE_SECONDS = 0.2
"""After each write, and while runs wait: a thousand of them created at once must not wait for their Events."""

REMEMBERED = 1000
MAX_NOTE = 1024
"""The API's limit for an Event's note."""

Kind = Literal["Normal", "Warning"]


class EventSubject(Protocol):
    """An object of ours. Cluster-scoped ones have the namespace `default`: their Events live there."""

    @property
    def kind(self) -> str: ...

    @property
    def metadata(self) -> ObjectMeta: ...


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence for one object. Equal occurrences are one Event with a count."""

    subject_kind: str
    namespace: str
    name: str
    uid: str
    kind: Kind
    reason: str
    note: str


class EventRecorder:
    """Accepts occurrences at once and writes them when it can, with the time of their report. Losing one does no harm;
    waiting for one would.
    """

    def __init__(
        self,
        client: ClusterClient,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`busy`: whether anything waits that is more urgent than an Event."""
        self._client = client
        self._now = now
        self._busy = busy
        self._queue: asyncio.Queue[tuple[Occurrence, str]] = asyncio.Queue(QUEUE_SIZE)
        self._counts: OrderedDict[Occurrence, int] = OrderedDict()
        self._instance = socket.gethostname()[:128] or MANAGER

    def record(self, subject: EventSubject, kind: Kind, reason: str, message: str) -> None:
        """Never fails, never waits."""
        about = subject.metadata
        identity = (subject.kind, about.namespace, about.name, about.uid)
        occurrence = Occurrence(*identity, kind, reason[:128], message[:MAX_NOTE])
        try:
            self._queue.put_nowait((occurrence, micro_time(self._now())))
        except asyncio.QueueFull:
            EVENTS_DROPPED.labels("queue full").inc()

    async def run(self) -> None:
        """Write forever; ends only by cancellation."""
        while True:
            occurrence, told = await self._queue.get()
            try:
                await self._write(occurrence, told)
            except OperatorError as error:
                EVENTS_DROPPED.labels("refused").inc()
                log.debug("event %s for %s was not written: %s", occurrence.reason, occurrence.name, error)
            await asyncio.sleep(BUSY_PAUSE_SECONDS if self._busy() else PAUSE_SECONDS)

    async def _write(self, occurrence: Occurrence, told: str) -> None:
        count = self._counts.get(occurrence, 0) + 1
        try:
            await (self._create(occurrence, told) if count == 1 else self._count_up(occurrence, count, told))
        except ConflictError:
            count = 2  # written before this process began
            await self._count_up(occurrence, count, told)
        except GoneError:
            count = 1  # Events live for an hour
            await self._create(occurrence, told)
        self._counts[occurrence] = count
        self._counts.move_to_end(occurrence)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    async def _create(self, occurrence: Occurrence, told: str) -> None:
        await self._client.create(EVENTS.path(occurrence.namespace), self._manifest(occurrence, told))

    async def _count_up(self, occurrence: Occurrence, count: int, told: str) -> None:
        series = {"series": {"count": count, "lastObservedTime": told}}
        await self._client.patch(EVENTS.path(occurrence.namespace, _event_name(occurrence)), series)

    def _manifest(self, occurrence: Occurrence, told: str) -> dict[str, object]:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": _event_name(occurrence), "namespace": occurrence.namespace},
            "eventTime": told,
            "reportingController": f"{GROUP}/{MANAGER}",
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": occurrence.reason,
            "type": occurrence.kind,
            "note": occurrence.note,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": occurrence.subject_kind,
                **({} if occurrence.subject_kind == RUNTIME_KIND else {"namespace": occurrence.namespace}),
                "name": occurrence.name,
                "uid": occurrence.uid,
            },
        }


def _event_name(occurrence: Occurrence) -> str:
    """The same occurrence gets the same name, also after a restart of the operator."""
    content = f"{occurrence.uid}\0{occurrence.kind}\0{occurrence.reason}\0{occurrence.note}"
    return f"{occurrence.name}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
