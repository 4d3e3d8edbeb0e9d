"""The trainers' own `/status` (contract: Containers), polled by one paced task, never inside a reconcile."""

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Never

import aiohttp
import orjson
from pydantic import ValidationError

from rl_contract.processes import OPS_TOKEN_HEADER, TRAINER_PORT
from rl_contract.status_metrics import HISTORY_METRICS
from rl_operator.api.names import TRAINER_CONTAINER, TRAINING_COMPONENT
from rl_operator.status.observed.history import Point, joined, read_points, thinned
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation
from rl_operator.telemetry import TRAINER_POLLS

REREAD_SHARE = 0.05
"""The share of the run's steps after which the history is read again."""

LAST_PHASES = ("saving", "done")
"""Of a trainer that will soon stop responding."""


class PolledHistory:
    """Compressed, a column per metric: a full history is 3 to 8 kB, a thousand of them less than 10 MB."""

    __slots__ = ("_packed", "_read_at")

    def __init__(self) -> None:
        self._packed = b""
        self._read_at: tuple[int, bool] | None = None

    def due(self, status: ObservedTrainer) -> bool:
        """Whether the history is to be read now: at the start, by steps, and before the end."""
        if not status.step:
            return False
        now = _moment(status)
        if self._read_at is None or self._read_at == now:
            return self._read_at is None
        step, last = self._read_at
        return now[1] != last or abs(now[0] - step) >= REREAD_SHARE * status.total_steps

    def take(self, status: ObservedTrainer, points: Sequence[Point]) -> None:
        """A restarted trainer knows only its own steps: the earlier points are kept."""
        self._read_at = _moment(status)
        self._packed = _pack(thinned(joined(self.points, points)))

    @property
    def points(self) -> tuple[Point, ...]:
        return _unpack(self._packed) if self._packed else ()

    def __bool__(self) -> bool:
        return bool(self._packed)


_COLUMNS = ("step", *HISTORY_METRICS)


def _pack(points: Sequence[Point]) -> bytes:
    columns = [[point.get(name) for point in points] for name in _COLUMNS]
    return zlib.compress(orjson.dumps(columns), level=9)


def _unpack(packed: bytes) -> tuple[Point, ...]:
    rows = zip(*orjson.loads(zlib.decompress(packed)), strict=True)
    return tuple({name: value for name, value in zip(_COLUMNS, row, strict=True) if value is not None} for row in rows)


def _moment(status: ObservedTrainer) -> tuple[int, bool]:
    return status.step, status.phase in LAST_PHASES


ANSWER_SECONDS = 5.0
HISTORY_SECONDS = 20.0
STATUS_BYTES = 64 * 1024
HISTORY_BYTES = 4 * 2**20
"""500 points of six metrics are 70 kB; a trainer that cannot select metrics sends all of them: a megabyte."""

AT_ONCE = 256
"""Requests in flight. A thousand trainers behind a firewall that drops packets take 5 s each, every 30 s: 170."""

SILENT_POLLS = 3
"""A ready trainer that failed to respond this many times in a row cannot be reached from here."""

STARTING_SECONDS = 5.0
"""A trainer that is not ready yet, or not heard since it is, is asked at least this often: what keeps it from its
backend is for people to fix.
"""

STARTING_SILENCE_SECONDS = 20.0
"""A trainer that runs this long and is neither ready nor heard may be one that cannot be reached from here."""


def pod_ops_url(pod: PodObservation) -> str | None:
    """The URL of a trainer in its pod; None: the pod has no address yet."""
    host = f"[{pod.address}]" if ":" in (pod.address or "") else pod.address
    return f"http://{host}:{TRAINER_PORT}" if host else None


@dataclass(slots=True)
class _Known:
    """What is known about one pod's trainer. Times are by time.monotonic(). `heard_in`: its container's state when it
    said `status`. `silent` counts polls of a ready one, `unheard` and `unheard_since` are of one that starts.
    """

    status: ObservedTrainer | None = None
    heard_in: str | None = None
    silent: int = 0
    unheard: bool = False
    unheard_since: float | None = None
    asked_at: float = float("-inf")
    asking: bool = False
    history: PolledHistory = field(default_factory=PolledHistory)

    @property
    def unreachable(self) -> bool:
        return self.silent >= SILENT_POLLS


class TrainerPoller:
    """Polls each running trainer once per interval and keeps its latest response by pod uid."""

    def __init__(
        self,
        pods: Callable[[], Iterable[PodObservation]],
        changed: Callable[[PodObservation], None],
        *,
        interval_seconds: float,
        ops_url: Callable[[PodObservation], str | None] = pod_ops_url,
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._interval = interval_seconds
        self._ops_url = ops_url
        self._known: dict[str, _Known] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def status_of(self, pod: PodObservation) -> ObservedTrainer | None:
        """The latest response, however old: the trainer itself reports when it made its last step. What it waited for
        is left out once its container has another state. None: it cannot be reached (anymore).
        """
        known = self._known_of(pod)
        if known.status is None or known.heard_in == _trainer_state(pod):
            return known.status
        return known.status.with_changes(waiting=None, backend_silent=False)

    def unreachable(self, pod: PodObservation) -> bool:
        """Whether it did not respond SILENT_POLLS times in a row while its container was ready."""
        return self._known_of(pod).unreachable

    def unheard(self, pod: PodObservation) -> bool:
        """Whether it was not heard for STARTING_SILENCE_SECONDS while it started, and not since."""
        return self._known_of(pod).unheard

    def points(self, pod: PodObservation) -> tuple[Point, ...]:
        """The attempt's history, as far as it was read; kept until the pod's finalizer is removed."""
        return self._known_of(pod).history.points

    def has_points(self, pod: PodObservation) -> bool:
        return bool(self._known_of(pod).history)

    def _known_of(self, pod: PodObservation) -> _Known:
        return self._known.get(pod.uid) or _Known()

    async def run(self) -> None:
        """Poll forever; ends only by cancellation."""
        # Every pod is its own server: a kept connection would be closed before the next request.
        connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
            asyncio.TaskGroup() as group,
        ):
            starting = group.create_task(self._keep_asking(session, group, starting=True))
            try:
                await self._keep_asking(session, group, starting=False)
            finally:
                starting.cancel()

    async def _keep_asking(self, session: aiohttp.ClientSession, group: asyncio.TaskGroup, *, starting: bool) -> Never:
        interval = min(self._interval, STARTING_SECONDS) if starting else self._interval
        while True:
            await self._round(session, group, interval, starting=starting)

    async def _round(
        self, session: aiohttp.ClientSession, group: asyncio.TaskGroup, interval: float, *, starting: bool
    ) -> None:
        """Poll every running trainer, spread evenly over the interval, none sooner than an interval after the last
        time. No response is awaited.
        """
        pods = [pod for pod in self._to_ask() if self._is_starting(pod) == starting]
        slot = time.monotonic()
        for pod in pods:
            known = self._known.get(pod.uid)
            if known is None:  # gone while others were asked
                continue
            await _until(max(slot, known.asked_at + interval))
            slot += interval / len(pods)
            if not known.asking:
                await self._slots.acquire()
                known.asked_at, known.asking = time.monotonic(), True
                group.create_task(self._ask(session, pod, known)).add_done_callback(lambda _: self._slots.release())
        await _until(slot if pods else slot + min(interval, 1.0))

    def _to_ask(self) -> list[PodObservation]:
        """Those that may respond, the longest unpolled first; what is known about others is dropped."""
        trainers = [pod for pod in self._pods() if pod.component == TRAINING_COMPONENT]
        known = {pod.uid: self._known.get(pod.uid) or _Known() for pod in trainers if pod.held or not pod.over}
        self._known = known
        asked = [pod for pod in trainers if pod.address and not pod.over]
        return sorted(asked, key=lambda pod: known[pod.uid].asked_at)

    def _is_starting(self, pod: PodObservation) -> bool:
        """Or has just become ready: what it said before that is outdated."""
        state, known = _trainer_state(pod), self._known_of(pod)
        return state == "Running" or (state == "Ready" and known.heard_in == "Running" and not known.silent)

    async def _ask(self, session: aiohttp.ClientSession, pod: PodObservation, known: _Known) -> None:
        try:
            url = self._ops_url(pod)
            get = partial(_get, session, url, pod.ops_token)
            status = await _status(get, pod) if url else None
            if status is None:
                self._not_heard(pod, known)
                return
            self._heard(pod, known, status)
            if known.history.due(status):
                await _read_history(get, known.history, status)
        finally:
            known.asking = False

    def _heard(self, pod: PodObservation, known: _Known, status: ObservedTrainer) -> None:
        state = _trainer_state(pod)
        news = known.status != status or known.heard_in != state or known.unreachable or known.unheard
        known.status, known.silent, known.unheard, known.unheard_since = status, 0, False, None
        known.heard_in = state
        if news:
            self._changed(pod)

    def _not_heard(self, pod: PodObservation, known: _Known) -> None:
        """Only a ready container is expected to respond: the kubelet reaches it. One that starts has some time."""
        state = _trainer_state(pod)
        if state == "Running":
            self._not_heard_yet(pod, known)
        elif state == "Ready":
            known.silent += 1
            if known.silent == SILENT_POLLS:
                known.status = None  # other sources may know more by now
                self._changed(pod)

    def _not_heard_yet(self, pod: PodObservation, known: _Known) -> None:
        now = time.monotonic()
        known.unheard_since = now if known.unheard_since is None else known.unheard_since
        if known.status or known.silent or known.unheard or now - known.unheard_since < STARTING_SILENCE_SECONDS:
            return
        known.unheard = True
        self._changed(pod)


def _trainer_state(pod: PodObservation) -> str | None:
    trainer = pod.container(TRAINER_CONTAINER)
    return trainer.state if trainer else None


def _is_of(status: ObservedTrainer, pod: PodObservation) -> bool:
    """An address is soon reused after its pod is gone: only a trainer that says whose it is counts."""
    return status.run_uid == pod.run_uid and status.attempt == pod.attempt


async def _get(
    session: aiohttp.ClientSession, url: str | None, ops_token: str, path: str, *, seconds: float, most_bytes: int
) -> object:
    """JSON from a pod, with its token; redirects are not followed."""
    timeout, headers = aiohttp.ClientTimeout(total=seconds), {OPS_TOKEN_HEADER: ops_token}
    async with session.get(f"{url}{path}", headers=headers, timeout=timeout, allow_redirects=False) as response:
        if response.status != 200:
            raise UnreadableAnswerError(f"HTTP {response.status}")
        answer: object = await read_json(response, most_bytes)
        return answer


Get = Callable[..., Awaitable[object]]
"""`_get` from one pod."""


async def _status(get: Get, pod: PodObservation) -> ObservedTrainer | None:
    """The trainer's response; None if there was none from that trainer."""
    try:
        status = ObservedTrainer.model_validate(await get("/status", seconds=ANSWER_SECONDS, most_bytes=STATUS_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError):
        # Not up yet, or shutting down: the pod's own status has the relevant state.
        TRAINER_POLLS.labels("silent").inc()
    except (UnreadableAnswerError, ValidationError):
        TRAINER_POLLS.labels("unreadable").inc()
    else:
        if _is_of(status, pod):
            TRAINER_POLLS.labels("answered").inc()
            return status
        TRAINER_POLLS.labels("stranger").inc()
    return None


async def _read_history(get: Get, history: PolledHistory, status: ObservedTrainer) -> None:
    path = f"/history?figures={','.join(HISTORY_METRICS)}"
    try:
        points = read_points(await get(path, seconds=HISTORY_SECONDS, most_bytes=HISTORY_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, UnreadableAnswerError):
        TRAINER_POLLS.labels("no history").inc()
    else:
        history.take(status, points)


class UnreadableAnswerError(Exception):
    """The response is not JSON, or is longer than anything that we asked for."""


async def read_json(response: aiohttp.ClientResponse, most_bytes: int) -> object:
    """The body as JSON; raises UnreadableAnswerError, and never holds more than `most_bytes` (and one chunk)."""
    held = bytearray()
    async for piece in response.content.iter_any():
        held += piece
        if len(held) > most_bytes:
            raise UnreadableAnswerError(f"more than {most_bytes} bytes")
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswerError(f"no JSON: {error}") from error


async def _until(moment: float) -> None:
    """Sleep until that time of time.monotonic()."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
