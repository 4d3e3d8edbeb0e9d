"""Which runs changed: one poll for all tabs that look at the same runs."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final

import anyio.to_thread

from rl_operator.operator_errors import ForbiddenError, OperatorError, UnauthenticatedError

POLL_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 20.0
LARGEST_SHARE: Final = 0.25
"""Of the time, all polls of a server together may take this much: a slow target is asked less often."""
MOST_POLLS_AT_ONCE: Final = 2
"""A list of a thousand runs is 5 MiB while it is read."""

Key = tuple[str, str]
"""Namespace and name."""

Change = frozenset[Key]
Versions = Mapping[Key, str]

logger = logging.getLogger(__name__)


class NoLongerLiveError(OperatorError):
    """The runs may not be listed, or no longer: nothing more comes. Without a sentence: the server ends."""


class Listener:
    """What one tab has not been told yet: however slowly it reads, at most the runs that there are."""

    def __init__(self) -> None:
        self._changed: set[Key] = set()
        self._over: str | None = None
        self._woken = asyncio.Event()

    async def next(self) -> Change:
        """The runs that were made, changed or deleted since the last call. Raises NoLongerLiveError."""
        await self._woken.wait()
        if self._over is not None:
            raise NoLongerLiveError(self._over)
        self._woken.clear()
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def tell(self, changed: Change) -> None:
        self._changed |= changed
        self._woken.set()

    def end(self, sentence: str) -> None:
        self._over = sentence
        self._woken.set()


class OpenStreams:
    """The streams of one server, which has to end them before it ends itself."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    @contextlib.contextmanager
    def opened(self, listener: Listener) -> Iterator[None]:
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def tell(self, changed: Change) -> None:
        """Tells streams of what no poll sees."""
        for listener in tuple(self._listeners):
            listener.tell(changed)

    def end(self) -> None:
        for listener in tuple(self._listeners):
            listener.end("")


class Polls:
    """What all polls of one server share."""

    def __init__(self) -> None:
        self.running = 0
        self.places = anyio.CapacityLimiter(MOST_POLLS_AT_ONCE)


class LiveRuns:
    """Polls while somebody listens. `read` returns what changes whenever a run does, and blocks."""

    def __init__(
        self, read: Callable[[], Versions], poll_seconds: float = POLL_SECONDS, polls: Polls | None = None
    ) -> None:
        self._list = read
        self._polls = polls or Polls()
        self._poll_seconds = poll_seconds
        self._listeners: set[Listener] = set()
        self._polling: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Listener]:
        listener = Listener()
        self._listeners.add(listener)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="live runs")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def _poll(self) -> None:
        self._polls.running += 1
        try:
            await self._watch()
        except (ForbiddenError, UnauthenticatedError) as error:
            self._end(str(error))
        except Exception:  # the edge of a task that nobody awaits
            logger.exception("the runs can no longer be followed")
            self._end("the server failed; its log says more")
        finally:
            self._polls.running -= 1

    async def _watch(self) -> None:
        """Until the caller may no longer look. Raises ForbiddenError, UnauthenticatedError."""
        known: Versions | None = None
        while True:
            async with self._polls.places:
                began = time.monotonic()
                found = await self._read()
                taken = time.monotonic() - began
            if found is not None:
                if known is not None and (changed := _difference(known, found)):
                    for listener in self._listeners:
                        listener.tell(changed)
                known = found
            await asyncio.sleep(pause(self._poll_seconds, taken * self._polls.running))

    async def _read(self) -> Versions | None:
        """None: the target does not answer at the moment."""
        try:
            return await anyio.to_thread.run_sync(self._list)
        except (ForbiddenError, UnauthenticatedError):
            raise
        except OperatorError:
            return None

    def _end(self, sentence: str) -> None:
        self._polling = None
        for listener in self._listeners:
            listener.end(sentence)


def pause(poll_seconds: float, taken: float) -> float:
    """Seconds until the next poll, after a round of all polls that took `taken`."""
    return min(max(poll_seconds, taken / LARGEST_SHARE), max(poll_seconds, LONGEST_PAUSE_SECONDS))


def _difference(before: Versions, after: Versions) -> Change:
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
