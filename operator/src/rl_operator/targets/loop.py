"""Blocking calls of async code, made from any thread: they run in one event loop, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class LoopThread:
    """Lives as long as the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="api-calls", daemon=True).start()

    def wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """The call's result, or its error; the call is cancelled if the wait is interrupted."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
