"""Where the tools of all rollouts of this process are called, and which sandbox is whose.

Graders know only the id of a rollout (`ToolContext(task_id)`), so that there is one toolbox in a process: that of its
environment.
"""

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

from tinker_atropos.environments.agents.tool import Tool, ToolArgumentsError
from tinker_atropos.sandboxes.sandbox import Sandbox, SandboxLostError, SandboxPool

T = TypeVar("T")

MAX_RESULT_CHARACTERS = 50_000
"""Of a tool's answer: what follows is left out, and the answer says so."""


class ToolFailedError(Exception):
    """A call that did not work; the message is for the agent."""


class Toolbox:
    """`make_pool` makes the sandboxes once one is needed; `seconds` bounds one call, without the wait for a sandbox;
    `threads` calls run at once.
    """

    def __init__(self, make_pool: Callable[[], SandboxPool], seconds: float, threads: int, places: int = 1) -> None:
        """`places`: how many sandboxes are reserved at once."""
        self._make_pool, self._seconds = make_pool, seconds
        self._reserving = ThreadPoolExecutor(places, thread_name_prefix="reserve")
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}
        self._ended: dict[str, None] = {}

    @cached_property
    def _pool(self) -> SandboxPool:
        return self._make_pool()

    def sandbox(self, task_id: str) -> Sandbox:
        """The rollout's, from its first use on. Blocks. Raises SandboxLostError if there is none to be had."""
        with self._lock:
            if task_id in self._ended:
                raise SandboxLostError("the rollout is over, and so is its sandbox")
            pool = self._pool
            lease = self._leases.setdefault(task_id, _Lease())
        return lease.taken(pool)

    async def reserve(self) -> "ReservedSandbox":
        """One for a rollout that has not begun: waiting for it takes neither its time nor a thread of tools. Raises
        SandboxLostError.
        """
        is_wanted = True
        with self._lock:
            pool = self._pool
        leasing = self._reserving.submit(lambda: pool.lease(lambda: is_wanted))
        try:
            return ReservedSandbox(await asyncio.wrap_future(leasing))
        except asyncio.CancelledError:
            is_wanted = False
            leasing.add_done_callback(self._not_wanted)
            raise

    def free(self, reserved: "ReservedSandbox") -> None:
        """When its rollout is over, which has ended it if it was used."""
        if not reserved.is_used:
            self._pool.give_back(reserved.sandbox)

    def give(self, task_id: str, reserved: "ReservedSandbox") -> None:
        with self._lock:
            self._leases[task_id] = _Lease(reserved)

    def _not_wanted(self, leasing: "Future[Sandbox]") -> None:
        """It came too late."""
        if not leasing.cancelled() and leasing.exception() is None:
            self._pool.give_back(leasing.result())

    def release(self, task_id: str) -> None:
        """End the rollout's sandbox, if it has one. One that is still waited for is not waited for any longer."""
        with self._lock:
            lease = self._leases.pop(task_id, None)
        if lease is not None:
            lease.end()

    def end(self, task_id: str) -> None:
        """The same when the rollout is over: it gets no other one."""
        with self._lock:
            self._ended[task_id] = None
            if len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]
        self.release(task_id)

    def close(self) -> None:
        if "_pool" in self.__dict__:
            self._pool.close()
        for executor in (self.executor, self._reserving):
            executor.shutdown(wait=False, cancel_futures=True)

    async def call(self, tool: Tool, arguments: str, task_id: str) -> str:
        """What the agent is told. Raises ToolFailedError for a call that did not work, SandboxLostError."""
        try:
            call = await self._prepared(tool, _parsed(tool, arguments), task_id)
            async with asyncio.timeout(self._seconds + GRACE_SECONDS):
                return _as_text(await call())
        except (SandboxLostError, ToolFailedError):
            raise
        except ToolArgumentsError as error:
            raise ToolFailedError(str(error)) from None
        except TimeoutError:
            raise ToolFailedError(f"{tool.name} took longer than {self._seconds:g} s") from None
        except Exception as error:  # an author's tool: the agent reads what went wrong
            raise ToolFailedError(f"{tool.name} failed: {type(error).__name__}: {error}") from error

    async def _prepared(
        self, tool: Tool, arguments: dict[str, Any], task_id: str
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """What calls the tool. A sandbox is there by then: waiting for one is not a part of the call."""
        if inspect.iscoroutinefunction(tool.function):
            return partial(tool.function, **arguments)
        if not tool.in_sandbox:
            return partial(self._in_thread, partial(tool.function, **arguments))
        if "timeout" in tool.parameters["properties"]:
            arguments["timeout"] = min(float(arguments.get("timeout", self._seconds)), self._seconds)
        sandbox = await self._in_thread(partial(self.sandbox, task_id))
        return partial(self._in_thread, partial(tool.function, sandbox, **arguments))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)


REMEMBERED = 10_000
"""Rollouts that are over: what an author left running must not lease another sandbox for one."""

GRACE_SECONDS = 30.0
"""A sandbox ends its command by itself; only one that does not is given up from here."""


class ReservedSandbox:
    """Nobody else's. One that was not used can be another rollout's."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.is_used = False


class _Lease:
    """A rollout's sandbox, from its first use on until the rollout is over."""

    def __init__(self, reserved: ReservedSandbox | None = None) -> None:
        self._reserved = reserved
        self._taking = threading.Lock()
        self._ending = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._is_over = False

    def taken(self, pool: SandboxPool) -> Sandbox:
        """All threads of the rollout get the same one. Raises SandboxLostError."""
        with self._taking:
            return self._sandbox or self._kept(self._first(pool))

    def _first(self, pool: SandboxPool) -> Sandbox:
        if self._reserved is None:
            return pool.lease(lambda: not self._is_over)
        self._reserved.is_used = True
        return self._reserved.sandbox

    def end(self) -> None:
        with self._ending:
            self._is_over = True
        if self._sandbox is not None:
            self._sandbox.close()

    def _kept(self, sandbox: Sandbox) -> Sandbox:
        with self._ending:
            if not self._is_over:
                self._sandbox = sandbox
                return sandbox
        sandbox.close()
        raise SandboxLostError("the rollout was over before its sandbox was there")


def _parsed(tool: Tool, arguments: str) -> dict[str, Any]:
    """Raises ToolArgumentsError."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsError(f"{tool.name}: the arguments are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ToolArgumentsError(f"{tool.name}: the arguments are not an object")
    tool.check(given)
    return given


def _as_text(result: Any) -> str:
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    if len(text) <= MAX_RESULT_CHARACTERS:
        return text
    return f"{text[:MAX_RESULT_CHARACTERS]}\n({len(text) - MAX_RESULT_CHARACTERS} characters are left out)"


_installed: Toolbox | None = None


def install(toolbox: Toolbox | None) -> None:
    global _installed  # noqa: PLW0603 -- see the module's docstring
    _installed = toolbox


def installed() -> Toolbox:
    """Raises RuntimeError if no environment was made in this process."""
    if _installed is None:
        raise RuntimeError("there is no environment in this process: a rollout's tools belong to one")
    return _installed
