"""A regular expression that is searched for in rollouts.

Python's own takes exponential time for some patterns (`(a+)+$`) on some texts, and both may be anyone's: `regex` has
the same patterns, and a limit of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from rl_operator.errors import RefusedError

if TYPE_CHECKING:
    from regex import Pattern

LONGEST_PATTERN: Final = 1_000
LONGEST_TEXT: Final = 4_000_000
"""Characters. What follows them is not searched."""

SECONDS: Final = 2.0
"""For one text."""


@dataclass(frozen=True)
class TextSearch:
    pattern: "Pattern[str]"

    @classmethod
    def of(cls, text: str, name: str = "--grep") -> Self:
        """`name`: of the option, for errors. Raises RefusedError."""
        import regex

        if len(text) > LONGEST_PATTERN:
            raise RefusedError(f"{name} has {len(text):,} characters; {LONGEST_PATTERN:,} are allowed")
        try:
            return cls(regex.compile(text, regex.VERSION0))
        except (regex.error, RecursionError) as error:
            hint = r"put \ before characters that are meant as they are, like \( or \["
            raise RefusedError(f"{name} is {text!r}, which is no regular expression: {error}; {hint}") from None

    def finds(self, texts: Iterable[str]) -> bool:
        """Raises RefusedError if the pattern takes too long."""
        try:
            return any(self.pattern.search(text[:LONGEST_TEXT], timeout=SECONDS) for text in texts)
        except TimeoutError:
            raise RefusedError(
                f"the pattern {self.pattern.pattern!r} takes more than {SECONDS:g} seconds on one text: repetitions "
                f"within repetitions, like (a+)+, do; use a simpler one"
            ) from None
