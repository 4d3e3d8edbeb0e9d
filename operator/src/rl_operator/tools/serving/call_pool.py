"""Tool calls from an event loop: each in a thread, with a limit, and cancelled when the caller is gone."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from rl_operator.operator_errors import BusyError, OperatorError
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import Outcome, outcome_of

Answer = TypeVar("Answer")
OpenContext = Callable[[], contextlib.AbstractContextManager[CallContext]]
"""The caller's context, open for the duration of the call. Used in the call's thread; raises OperatorErrors."""


@dataclass(frozen=True)
class CallLimits:
    """The maximum number of calls in progress, of those that wait for a run, and of those in the queue."""

    at_once: int = 48
    waiting: int = 32
    in_line: int = 64


class Calls:
    """For one event loop."""

    def __init__(self, limits: CallLimits = CallLimits()) -> None:
        self._limits = limits
        self._places = anyio.CapacityLimiter(limits.at_once)
        self._open: set[threading.Event] = set()
        self._ended_too: list[Callable[[], None]] = []
        self._waiting = 0
        self._ending = False

    async def call(
        self, answer: Callable[[CallContext], Outcome], open_context: OpenContext, *, waits: bool
    ) -> Outcome:
        """`waits`: for a run. If enough callers wait already, this one is answered at once, with the current state."""
        with self._attended() as given_up, self._waiting_room(waits=waits) as has_room:

            def served() -> Outcome:
                with open_context() as context:
                    longest_wait = context.longest_wait if has_room else 0.0
                    return answer(replace(context, given_up=given_up, longest_wait=longest_wait))

            try:
                return await self.in_thread(served)
            except OperatorError as error:
                return outcome_of(error)

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """What `work` returns or raises. If cancelled, it continues in the background and keeps its slot until it ends.

        Raises BusyError.
        """
        if self._places.statistics().tasks_waiting >= self._limits.in_line:
            raise BusyError(f"{self._limits.in_line} calls are already waiting: try again in a few seconds")
        loop, place = asyncio.get_running_loop(), object()
        await self._places.acquire_on_behalf_of(place)
        return await asyncio.wrap_future(
            _started(work, lambda: loop.call_soon_threadsafe(self._places.release_on_behalf_of, place))
        )

    def when_ending(self, end: Callable[[], None]) -> None:
        """Call that, too."""
        self._ended_too.append(end)

    def end(self) -> None:
        """Every caller is answered as soon as the look in progress is done. In the thread of the event loop."""
        self._ending = True
        for end in self._ended_too:
            end()
        for given_up in tuple(self._open):
            given_up.set()

    @contextlib.contextmanager
    def _attended(self) -> Iterator[threading.Event]:
        """An event that is set once the caller no longer waits for the answer."""
        given_up = threading.Event()
        self._open.add(given_up)
        if self._ending:
            given_up.set()
        try:
            yield given_up
        finally:
            given_up.set()
            self._open.discard(given_up)

    @contextlib.contextmanager
    def _waiting_room(self, *, waits: bool) -> Iterator[bool]:
        """Whether the caller may wait."""
        has_room = not waits or self._waiting < self._limits.waiting
        counted = int(waits and has_room)
        self._waiting += counted
        try:
            yield has_room
        finally:
            self._waiting -= counted


def _started(work: Callable[[], Answer], ended: Callable[[], object]) -> Future[Answer]:
    """A daemon thread: the process does not wait for it at its end."""
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 -- raised where the answer is awaited
            future.set_exception(error)
        else:
            future.set_result(answer)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the slot is not needed
            ended()

    threading.Thread(target=run, name="tool-call", daemon=True).start()
    return future
