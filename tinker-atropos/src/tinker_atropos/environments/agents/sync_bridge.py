"""Synchronous calls in asynchronous code that do not hold up the event loop.

`ToolContext.terminal()` is synchronous by its definition, and is called in `async def compute_reward`. Ten seconds of
pytest there would stop all other rollouts for ten seconds. So such a coroutine is driven in a greenlet: a synchronous
call in it hands its future to the event loop, as `await` would. It is how SQLAlchemy serves synchronous code.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

import greenlet

T = TypeVar("T")


class Bridged(Generic[T]):
    """Await it in place of the coroutine, and `run_blocking` below it waits without blocking."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        driver = _Driver(_drive)
        step = driver.switch(self._coroutine)
        while not driver.dead:
            try:
                value = yield step
            except BaseException as error:  # noqa: BLE001 -- such as a cancellation: it is the coroutine's
                step = driver.throw(error)
            else:
                step = driver.switch(value)
        return step  # type: ignore[no-any-return]  # a dead driver's last value is the coroutine's result


class _Driver(greenlet.greenlet):
    """A greenlet in the context of the one that made it."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__(run)
        self.gr_context = greenlet.getcurrent().gr_context


def _drive(awaitable: Any) -> Any:
    """The awaitable's result; what it yields goes to the event loop, by way of the parent."""
    steps = awaitable.__await__()
    resume, argument = steps.send, None
    while True:
        try:
            step = resume(argument)
        except StopIteration as stop:
            return stop.value
        parent = greenlet.getcurrent().parent
        assert parent is not None, "a driver has a parent"
        try:
            resume, argument = steps.send, parent.switch(step)
        except BaseException as error:  # noqa: BLE001 -- as above
            resume, argument = steps.throw, error


def run_blocking(executor: Executor, function: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks: in a thread, while the event loop goes on, if a `Bridged` is above; else here."""
    if not isinstance(greenlet.getcurrent(), _Driver):
        return function(*args)
    future = asyncio.get_running_loop().run_in_executor(executor, function, *args)
    result: T = _drive(future)
    return result
