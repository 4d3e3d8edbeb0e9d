"""How often an address has presented tokens that nobody knows: one that guesses is told to wait."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

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
