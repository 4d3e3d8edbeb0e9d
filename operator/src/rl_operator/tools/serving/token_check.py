"""Whether a caller's token is right, with a limit on how often somebody may guess."""

import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from rl_operator.operator_errors import OperatorError, UnauthenticatedError
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.sessions import Sessions
from rl_operator.tools.toolset import ErrorCode

MOST_WRONG: Final = 20
WINDOW_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 4_096


class WrongTokens:
    """By address, in windows that begin with the first wrong token."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def seconds_to_wait(self, address: str) -> float:
        """0: its next unknown token may be tried."""
        began, wrong = self._window(address)
        return began + WINDOW_SECONDS - self._now() if wrong >= MOST_WRONG else 0.0

    def note(self, address: str) -> None:
        began, wrong = self._window(address)
        self._windows[address] = (began, wrong + 1)
        self._windows.move_to_end(address)
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def _window(self, address: str) -> tuple[float, int]:
        now = self._now()
        began, wrong = self._windows.get(address, (now, 0))
        return (began, wrong) if now < began + WINDOW_SECONDS else (now, 0)


BUSY_SECONDS: Final = 5.0
RECHECK_SECONDS: Final = 10.0
"""With TRUSTED_SECONDS: an answer that goes on ends within a minute of its token."""


class TurnedAwayError(OperatorError):
    """The request is rejected at the gate."""

    def __init__(self, code: ErrorCode, sentence: str, again: float = BUSY_SECONDS) -> None:
        super().__init__(sentence)
        self.code = code
        self.again = again


class TokenCheck:
    """Asks the API server once in a while; wrong tokens are counted by the address that they come from."""

    def __init__(self, sessions: Sessions, calls: Calls, recheck_seconds: float = RECHECK_SECONDS) -> None:
        self._sessions = sessions
        self._calls = calls
        self._recheck_seconds = recheck_seconds
        self._wrong_tokens = WrongTokens()

    async def check(self, token: str, address: str) -> None:
        """Raises UnauthenticatedError. Callers whose tokens were right before may share an address with one that
        guesses, and notice nothing.
        """
        if self._sessions.knows(token):
            return
        seconds = self._wrong_tokens.seconds_to_wait(address)
        if seconds and not self._sessions.has_met(token):
            hint = f"too many wrong tokens came from {address}: correct the token, and try again in {seconds:.0f} s"
            raise TurnedAwayError("busy", hint, again=seconds)
        try:
            await self._calls.in_thread(lambda: _introduce(self._sessions, token))
        except UnauthenticatedError:
            self._wrong_tokens.note(address)
            raise

    async def while_right(self, token: str, address: str, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, or end it when the token has been revoked or has expired."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_wrong, token, address, group.cancel_scope)
            await work
            group.cancel_scope.cancel()

    async def _until_wrong(self, token: str, address: str, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._recheck_seconds)
            try:
                await self.check(token, address)
            except UnauthenticatedError:
                scope.cancel()
                return
            except OperatorError:  # busy, or no answer: nothing is known against the token
                continue


def _introduce(sessions: Sessions, token: str) -> None:
    with sessions.context(token):
        pass
