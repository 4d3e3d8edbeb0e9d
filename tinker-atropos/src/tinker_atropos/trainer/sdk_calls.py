"""How calls of the tinker SDK are waited for: within a deadline, off the event loop where the SDK blocks it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tinker_atropos.trainer.backend_errors import translate

T = TypeVar("T")


async def submitted(doing: str, deadline_seconds: float, submit: Callable[[], Any], *, opening: bool = True) -> Any:
    """Submit in a thread (the SDK blocks while it opens a session) and wait for the result, within the deadline."""
    try:
        return await asyncio.wait_for(in_thread(lambda: submit().result()), deadline_seconds)
    except Exception as error:  # the SDK's errors have no common base
        raise translate(error, doing, deadline_seconds, opening=opening) from error


async def answered(doing: str, deadline_seconds: float, future: Any) -> Any:
    """Wait for a future of the SDK within the deadline; giving up cancels it."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future.future()), deadline_seconds)
    except Exception as error:  # the SDK's errors have no common base
        raise translate(error, doing, deadline_seconds) from error


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread: one that never returns must not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 -- handed to the waiting coroutine
            future.set_exception(error)
        else:
            future.set_result(result)

    future.set_running_or_notify_cancel()
    threading.Thread(target=run, daemon=True, name="tinker-open").start()
    return await asyncio.wrap_future(future)
