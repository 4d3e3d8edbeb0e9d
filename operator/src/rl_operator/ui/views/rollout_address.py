"""What the page of a step's rollouts is asked for: the whole state of the page is in its address. Pure."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from rl_operator.rollouts.rollout_figures import Figure
from rl_operator.rollouts.token_ledger import UNKNOWN

SORTS: Final[Mapping[str, tuple[Figure | None, bool, str]]] = {
    "": (None, False, "trained ones first"),
    "reward": ("reward", False, "reward, highest first"),
    "reward-asc": ("reward", True, "reward, lowest first"),
    "advantage": ("advantage", False, "advantage, highest first"),
    "advantage-asc": ("advantage", True, "advantage, lowest first"),
    "gap": ("gap", False, "largest |log p − log q| first"),
    "length": ("length", False, "longest first"),
    "length-asc": ("length", True, "shortest first"),
    "staleness": ("staleness", False, "stalest first"),
}
"""The figure, whether the smallest comes first, and the words for it."""

FATES: Final = ("", "trained", "no_advantage", "dropped", "evaluated", "lost", UNKNOWN)
"""Of groups. Empty: all that were sampled for training."""

COLORS: Final[Mapping[str, str]] = {
    "advantage": "advantage",
    "gap": "|log p − log q|",
    "surprise": "surprise −log q",
    "fate": "what became of it",
}

VIEWS: Final[Mapping[str, str]] = {"tokens": "tokens", "talk": "conversation"}
SCOPES: Final[Mapping[str, str]] = {"": "this step", "all": "all steps"}

LONGEST_TEXT: Final = 200
MOST_PAGES: Final = 100_000

_NUMBER: Final = r"-?\d{1,12}(?:\.\d{1,15})?(?:e-?\d{1,3})?"
_RANGE: Final = re.compile(rf"({_NUMBER})-({_NUMBER})")


@dataclass(frozen=True, slots=True)
class RewardRange:
    """Both ends are included."""

    low: float
    high: float

    def __contains__(self, reward: float | None) -> bool:
        return reward is not None and self.low <= reward <= self.high

    def __str__(self) -> str:
        return f"{number_text(self.low)}-{number_text(self.high)}"


def number_text(value: float) -> str:
    """As short as it can be read back."""
    return f"{value:.12g}".replace("e+", "e")


@dataclass(frozen=True, slots=True)
class RolloutAddress:
    """`step` None: the newest that is finished. `page` from 1. `group`: only that one, with all of its tokens that a
    page holds. `before`: a search goes on below that step.
    """

    step: int | None = None
    fate: str = ""
    sort: str = ""
    reward: RewardRange | None = None
    q: str = ""
    scope: str = ""
    color: str = "advantage"
    view: str = "tokens"
    group: int | None = None
    page: int = 1
    before: int | None = None

    @property
    def order(self) -> tuple[Figure | None, bool]:
        figure, ascending, _ = SORTS[self.sort]
        return figure, ascending

    def to(self, **changes: Any) -> str:
        """The query of a link that keeps the rest. Another choice begins on its first page, with all its groups."""
        kept = replace(self, **{"page": 1, "group": None, "before": None, **changes})
        values = {name: getattr(kept, name) for name in self.__slots__}
        return urlencode({name: value for name, value in values.items() if value != getattr(_DEFAULT, name)})


_DEFAULT: Final = RolloutAddress()


def read_address(query: Mapping[str, str]) -> tuple[RolloutAddress, list[str]]:
    """The address, and a sentence for each parameter that cannot be read: it is left out."""
    values: dict[str, Any] = {}
    faults = []
    for name, (read, allowed) in _PARAMETERS.items():
        given = query.get(name, "").strip()
        if not given:
            continue
        try:
            values[name] = read(given)
        except ValueError:
            faults.append(f"{name} is {given[:40]!r} and was left out: it must be {allowed}")
    return RolloutAddress(**values), faults


Read = Callable[[str], Any]


def whole(most: int, least: int = 0) -> Read:
    """Reads an integer of that range."""

    def read(given: str) -> int:
        if not (given.isascii() and given.isdecimal() and len(given) <= 12 and least <= int(given) <= most):
            raise ValueError
        return int(given)

    return read


def _one_of(choices: Mapping[str, object] | tuple[str, ...]) -> Read:
    def read(given: str) -> str:
        if given not in choices:
            raise ValueError
        return given

    return read


def _range(given: str) -> RewardRange:
    found = _RANGE.fullmatch(given)
    if not found:
        raise ValueError
    low, high = float(found[1]), float(found[2])
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError
    return RewardRange(low, high)


def _text(given: str) -> str:
    if len(given) > LONGEST_TEXT:
        raise ValueError
    return given


def _listed(choices: Mapping[str, object] | tuple[str, ...]) -> str:
    return f"one of {', '.join(filter(None, choices))}"


_STEP: Final = "a step's number"
_PARAMETERS: Final[Mapping[str, tuple[Read, str]]] = {
    "step": (whole(10**12), _STEP),
    "fate": (_one_of(FATES), _listed(FATES)),
    "sort": (_one_of(SORTS), _listed(SORTS)),
    "reward": (_range, "a range like 0-0.5"),
    "q": (_text, f"a string of at most {LONGEST_TEXT} characters"),
    "scope": (_one_of(SCOPES), "all, or be left out"),
    "color": (_one_of(COLORS), _listed(COLORS)),
    "view": (_one_of(VIEWS), _listed(VIEWS)),
    "group": (whole(10**12), "a group's number"),
    "page": (whole(MOST_PAGES, least=1), "a page's number, from 1"),
    "before": (whole(10**12), _STEP),
}
"""How each is read, and what is allowed."""
