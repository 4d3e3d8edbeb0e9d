"""Blocking calls of async code, made from any thread: they run in an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

Answer = TypeVar("Answer")

CLOSE_SECONDS = 1.0
"""How long an interrupted call may take to end the programs that it started."""


class LoopThread:
    """Lives as long as the process, unless it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-calls", daemon=True)
        self._thread.start()

    def wait(self, call: Coroutine[object, object, Answer]) -> Answer:
        """The call's result, or its error; the call is cancelled if the wait is interrupted."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Let cancelled calls end, and end the thread; one that is blocked for longer is left behind."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_others_ended(), self._loop).result(CLOSE_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def run_sync(call: Coroutine[object, object, Answer]) -> Answer:
    """Run a call to its end, in a loop that is its own: it may block, and the caller's thread may have a running loop.

    `asyncio.run` allows neither, and in the main thread it holds back the first Ctrl-C until the loop gets to it.
    """
    loop = LoopThread()
    try:
        return loop.wait(call)
    finally:
        loop.close()


async def _others_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
