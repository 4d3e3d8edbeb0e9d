"""Calls of tools from an event loop: each in a thread, only so many at once, and given up when nobody waits."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio

from rl_operator.tools.desk import Desk
from rl_operator.tools.dispatch import Outcome, dispatch, failed
from rl_operator.tools.tool import Tool

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limits:
    """How many calls at most are being answered, how many of those wait for a run, how many stand in line."""

    at_once: int = 48
    waiting: int = 32
    in_line: int = 64


class Calls:
    """Must be made inside a running event loop."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._places = anyio.CapacityLimiter(limits.at_once)
        self._open: set[threading.Event] = set()
        self._waiting = 0
        self._ending = False

    async def call(self, tool: Tool, desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
        """Whoever comes when enough callers wait for runs already is answered at once, with what there is."""
        if self.is_full:
            return failed("busy", f"{self._limits.in_line} calls stand in line already: try again in a few seconds")
        with self._caller_of(desk) as caller, self._waiting_room(tool, arguments) as has_room:
            patient = caller if has_room else replace(caller, longest_wait=0.0)
            return await self.in_thread(lambda: dispatch(tool, patient, arguments))

    @property
    def is_full(self) -> bool:
        return self._places.statistics().tasks_waiting >= self._limits.in_line

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """What `work` returns or raises. Cancelled, it goes on unheard and keeps its place until it has ended."""
        loop, place = asyncio.get_running_loop(), object()
        await self._places.acquire_on_behalf_of(place)
        return await asyncio.wrap_future(
            _started(work, lambda: loop.call_soon_threadsafe(self._places.release_on_behalf_of, place))
        )

    def end(self) -> None:
        """Every caller is answered as soon as what is being looked at has been seen. From any thread."""
        self._ending = True
        for given_up in tuple(self._open):
            given_up.set()

    @contextlib.contextmanager
    def _caller_of(self, desk: Desk) -> Iterator[Desk]:
        given_up = threading.Event()
        self._open.add(given_up)
        if self._ending:
            given_up.set()
        try:
            yield replace(desk, given_up=given_up)
        finally:
            given_up.set()
            self._open.discard(given_up)

    @contextlib.contextmanager
    def _waiting_room(self, tool: Tool, arguments: Mapping[str, Any]) -> Iterator[bool]:
        """Whether the caller may wait."""
        waits = bool(arguments.get("wait_seconds")) or tool.effect == "stops"
        has_room = not waits or self._waiting < self._limits.waiting
        counted = int(waits and has_room)
        self._waiting += counted
        try:
            yield has_room
        finally:
            self._waiting -= counted


def _started(work: Callable[[], Answer], ended: Callable[[], object]) -> Future[Answer]:
    """A daemon thread: the end of the process waits for none."""
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 -- raised where the answer is awaited
            future.set_exception(error)
        else:
            future.set_result(answer)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs the place
            ended()

    threading.Thread(target=run, name="tool-call", daemon=True).start()
    return future
