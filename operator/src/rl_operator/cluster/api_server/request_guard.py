"""Every request to the API server passes through here, kopf's included: it is counted, and a write may be refused.

`WatchAges` reports how long each watch has been silent, from the bytes received on its stream. The API server sends a
bookmark a minute: a watch that is silent for minutes does not work, whether its stream stays open or is reopened over
and over in vain.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import aiohttp
from yarl import URL

from rl_operator.operator_errors import OperatorError
from rl_operator.telemetry import API_CALLS

AWAY_AFTER = 0.4
"""The share of the patience after which an API server that has not responded counts as away."""


class Stream(Protocol):
    """aiohttp's StreamReader, as far as it is used here."""

    @property
    def total_bytes(self) -> int: ...


class WatchAges:
    """Read by probes and scrapes; between two reads nothing is computed."""

    def __init__(self, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._streams: dict[str, tuple[Stream, int]] = {}
        self._heard_at: dict[str, float] = {}
        self._answered_at = float("-inf")
        self._answering_since = float("-inf")

    # --- reported by calls --------------------------------------------------------------------------------------
    def expect(self, plurals: Iterable[str]) -> None:
        """These are watched from now on, whether or not a stream is ever opened."""
        self._heard_at |= dict.fromkeys(plurals, self._clock())

    def opened(self, plural: str, stream: Stream) -> None:
        """A watch was accepted: that alone is not a sign of life."""
        self._look(plural)
        self._streams[plural] = (stream, 0)  # the first event may be here already

    def answered(self) -> None:
        now = self._clock()
        if self._away(now):
            self._answering_since = now
        self._answered_at = now

    # --- read by probes -----------------------------------------------------------------------------------------
    def silent_seconds(self) -> Mapping[str, float]:
        """When the last event or bookmark came, by plural."""
        for plural in self._streams:
            self._look(plural)
        now = self._clock()
        return {plural: now - heard_at for plural, heard_at in self._heard_at.items()}

    def stale(self) -> Mapping[str, float]:
        """The watches that were silent for longer than the patience while the API server responded to other calls."""
        now = self._clock()
        if self._away(now) or now - self._answering_since < self._patience:
            return {}
        return {plural: seconds for plural, seconds in self.silent_seconds().items() if seconds > self._patience}

    def _away(self, now: float) -> bool:
        return now - self._answered_at > self._patience * AWAY_AFTER

    def _look(self, plural: str) -> None:
        """Note whether the stream has received anything since the last look."""
        if plural not in self._streams:
            return
        stream, seen = self._streams[plural]
        if stream.total_bytes > seen:
            self._streams[plural] = (stream, stream.total_bytes)
            self._heard_at[plural] = self._clock()


_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OVERLOADED = 429


class NotLeadingError(OperatorError):
    """The lease is not held, or not certainly: nothing is written."""


def counted(ages: WatchAges) -> aiohttp.ClientMiddlewareType:
    """Counts calls by verb and code, and passes each watch's stream to `ages`."""

    async def count(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        verb = verb_of(request.method, request.url)
        try:
            response = await handler(request)
        except (aiohttp.ClientError, TimeoutError, OSError):
            API_CALLS.labels(verb, "none").inc()
            raise
        API_CALLS.labels(verb, str(response.status)).inc()
        if response.status < _OVERLOADED:
            ages.answered()
        if verb == "watch" and response.ok:
            ages.opened(request.url.path.rpartition("/")[2], response.content)
        return response

    return count


def fenced(may_write: Callable[[], bool]) -> aiohttp.ClientMiddlewareType:
    """Lets a write through only while `may_write()`.

    It cannot hold back what is already in flight: resourceVersions, uids and names protect against that. But a process
    that was suspended resumes where it was, before any timer tells it that its lease has expired.
    """

    async def guard(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if request.method in _WRITES and not may_write():
            raise NotLeadingError(f"{request.method} {request.url.path}: not sent: another operator may hold the lease")
        return await handler(request)

    return guard


def verb_of(method: str, url: URL) -> str:
    """Kubernetes' verb for a request. A collection's path ends in a plural, alone or below a namespace."""
    if method != "GET":
        return _WRITES.get(method, method.lower())
    if url.query.get("watch"):
        return "watch"
    below_version = len(url.path.strip("/").split("/")) - (2 if url.path.startswith("/api/") else 3)
    return "list" if below_version in (1, 3) else "get"
