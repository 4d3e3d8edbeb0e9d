"""The ledger of a step as a bar, and its rewards as a histogram: boxes of an SVG image with their words. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rl_operator.rollouts.token_ledger import FATE_WORDS, TokenLedger, percent
from rl_operator.ui.views.page_text import figure_text
from rl_operator.ui.views.rollouts.fate_words import FATE_SENTENCES
from rl_operator.ui.views.rollouts.rollout_address import RewardRange, number_text

BAR_WIDTH: Final = 1000
MOST_BARS: Final = 12
HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT = 480, 90
WIDEST_BAR: Final = 60
SMALLEST: Final = 3
"""Of a box: nothing that is there is invisible."""


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """`x`, `width`: in the bar, of BAR_WIDTH."""

    fate: str
    words: str
    sentence: str
    count: int
    share: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class RewardBar:
    """`chosen`: it is what is filtered for."""

    words: str
    range: RewardRange
    count: int
    x: float
    y: float
    width: float
    height: float
    chosen: bool


def ledger_parts(tokens: Mapping[str, int]) -> tuple[LedgerPart, ...]:
    """In the order of FATE_WORDS, side by side."""
    total = sum(tokens.values())
    counts = [(fate, count) for fate in FATE_WORDS if (count := tokens.get(fate, 0))]
    room = BAR_WIDTH - SMALLEST * len(counts)
    parts, x = [], 0.0
    for fate, count in counts:
        width = SMALLEST + room * count / total
        parts.append(
            LedgerPart(
                fate=fate,
                words=FATE_WORDS[fate],
                sentence=FATE_SENTENCES[fate],
                count=count,
                share=percent(count, total),
                x=round(x, 2),
                width=round(width, 2),
            )
        )
        x += width
    return tuple(parts)


def ledger_sentences(ledger: TokenLedger) -> tuple[str, bool]:
    """Whether it balances, in words, and as a truth value."""
    total = sum(ledger.tokens.values())
    if ledger.told is None:
        return f"{total:,} tokens so far: the step has not been trained.", True
    if ledger.balances:
        return f"{total:,} tokens arrived, and the account balances: each has one of these fates.", True
    return f"{list(ledger.sentences())[-1]}.", False


def reward_bars(rewards: Counter[float], chosen: RewardRange | None) -> tuple[RewardBar, ...]:
    """One for each reward if they are few, else for intervals of equal width, as far as there are rewards in them.

    The range of a bar is that of the rewards in it: no reward is in two.
    """
    bins = _bins(sorted(rewards))
    slots = max(bins, default=0) + 1
    counts = {slot: sum(rewards[value] for value in values) for slot, values in bins.items()}
    most, width = max(counts.values(), default=0), HISTOGRAM_WIDTH / slots
    return tuple(
        _bar(
            RewardRange(_below(values[0]), _above(values[-1])),
            counts[slot],
            chosen,
            x=slot * width,
            width=width,
            most=most,
        )
        for slot, values in bins.items()
    )


def _bins(values: Sequence[float]) -> dict[int, list[float]]:
    """Sorted values by slot."""
    if len(values) <= MOST_BARS:
        return {index: [value] for index, value in enumerate(values)}
    bins = defaultdict[int, list[float]](list)
    span = values[-1] - values[0]
    for value in values:
        bins[min(MOST_BARS - 1, int(MOST_BARS * ((value - values[0]) / span)))].append(value)
    return dict(bins)


def _bar(of: RewardRange, count: int, chosen: RewardRange | None, *, x: float, width: float, most: int) -> RewardBar:
    height = max(float(SMALLEST), HISTOGRAM_HEIGHT * count / most)
    return RewardBar(
        words=_words(of),
        range=of,
        count=count,
        x=round(x, 2),
        y=round(HISTOGRAM_HEIGHT - height, 2),
        width=round(min(width - 4, WIDEST_BAR), 2),
        height=round(height, 2),
        chosen=of == chosen,
    )


def _below(value: float) -> float:
    """A number that an address holds whole, and that is not larger: 1/3 must be within its own bar."""
    short = float(number_text(value))
    return short if short <= value else float(number_text(value - _slack(value)))


def _above(value: float) -> float:
    short = float(number_text(value))
    return short if short >= value else float(number_text(value + _slack(value)))


def _slack(value: float) -> float:
    return 1e-9 * max(1.0, abs(value))


def _words(each: RewardRange) -> str:
    low, high = figure_text(each.low), figure_text(each.high)
    return low if low == high else f"{low} to {high}"
