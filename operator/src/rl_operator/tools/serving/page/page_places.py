"""How much of the server the page may take: streams stay open for as long as somebody looks."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rl_operator.tools.serving.token_check import TurnedAwayError

MOST_OF_CALLER: Final = 64
MOST: Final = 256
"""Half of the connections that are served: the other half is for the tools."""


class PagePlaces:
    """Requests in progress, by caller."""

    def __init__(self, most_of_caller: int = MOST_OF_CALLER, most: int = MOST) -> None:
        self._most_of_caller = most_of_caller
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Raises TurnedAwayError."""
        if self._taken[caller] >= self._most_of_caller:
            raise TurnedAwayError("busy", f"You have {self._most_of_caller} requests open: close some tabs.")
        if self._taken.total() >= self._most:
            raise TurnedAwayError("busy", f"The page has {self._most} requests open: try again in a few seconds.")
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
