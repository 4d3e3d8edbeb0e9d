"""Lists our kinds again where kopf's watch has a gap: what vanished in it, kopf never tells."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rl_operator.errors import OperatorError

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
"""kopf lists all of our kinds when the API server was away: one look of ours serves them all."""
RETRY_SECONDS = 5.0


class Gaps:
    """A gap is where kopf lists a kind: at its start, and when its watch has expired."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._open = asyncio.Event()

    def note(self) -> None:
        """Kopf's list has begun: from its version on kopf watches, and a list of ours that begins now is later."""
        self._open.set()

    async def run(self) -> None:
        """Close gaps forever; ends only by cancellation."""
        while True:
            await self._open.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._open.clear()
            try:
                await self._close()
            except OperatorError as error:
                log.warning("our kinds cannot be listed again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                self._open.set()
