"""How a token is marked for what is known of it: a class of a style sheet, because nothing else may style a page. Pure.

Classes are `m0` to `m8`; the legend says what they stand for.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rl_operator.rollouts.rollout_records import GroupRecord, Rollout, SampledSequence
from rl_operator.ui.views.rollouts.turns import is_given

BINS: Final = 9
ZERO: Final = 4
"""The bin of an advantage of 0: those below it are negative."""

GAP_BOUNDS: Final = (0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Nats: where the next bin begins."""

SURPRISE_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0)

NO_MARK: Final = ""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    mark: str
    words: str


def advantages_of(rollout: Rollout, sequence: SampledSequence) -> Sequence[float | None]:
    """One for each token."""
    if sequence.advantages is not None:
        return sequence.advantages
    return [rollout.advantage] * len(sequence.tokens)


def largest_advantage(group: GroupRecord) -> float:
    """Of all rollouts and tokens; what the colors of advantages are measured by. 0 if there is none."""
    known = (
        abs(value)
        for rollout in group.rollouts
        for values in ([rollout.advantage], *(each.advantages or () for each in rollout.sequences))
        for value in values
        if value is not None and math.isfinite(value)
    )
    return max(known, default=0.0)


def advantage_mark(value: float | None, largest: float) -> str:
    if value is None or not math.isfinite(value):
        return NO_MARK
    if value == 0 or largest == 0:
        return f"m{ZERO}"
    strength = min(ZERO, max(1, math.ceil(ZERO * abs(value) / largest - 1e-9)))
    return f"m{ZERO + strength if value > 0 else ZERO - strength}"


def gap_mark(sampled: float | None, trained: float | None) -> str:
    if sampled is None or trained is None:
        return NO_MARK
    return _mark(abs(trained - sampled), GAP_BOUNDS)


def surprise_mark(sampled: float | None) -> str:
    return NO_MARK if sampled is None else _mark(-sampled, SURPRISE_BOUNDS)


def _mark(value: float, bounds: Sequence[float]) -> str:
    return NO_MARK if math.isnan(value) else f"m{bisect_right(bounds, value)}"


def marks_of(color: str, rollout: Rollout, sequence: SampledSequence, largest: float) -> Sequence[str]:
    """One for each token; `color` is one of rollout_address.COLORS. Fates are marked by runs, not by token, and what
    the policy was given is not marked.
    """
    size = len(sequence.tokens)
    sampled = sequence.logprobs or [None] * size
    if color == "advantage":
        pairs = zip(advantages_of(rollout, sequence), is_given(sequence), strict=True)
        return [NO_MARK if given else advantage_mark(each, largest) for each, given in pairs]
    if color == "gap":
        trained = sequence.trained_logprobs or [None] * size
        return [gap_mark(*pair) for pair in zip(sampled, trained, strict=True)]
    if color == "surprise":
        return [surprise_mark(each) for each in sampled]
    return [NO_MARK] * size


def legend_of(color: str, largest: float) -> tuple[LegendEntry, ...]:
    """What the classes stand for; empty for fates, which have a legend of their own."""
    if color == "gap":
        return _legend(GAP_BOUNDS)
    if color == "surprise":
        return _legend(SURPRISE_BOUNDS)
    if color == "advantage" and largest:
        ends = [largest * share / ZERO for share in range(-ZERO, ZERO + 1)]
        return tuple(LegendEntry(f"m{number}", f"{end:+.2g}" if end else "0") for number, end in enumerate(ends))
    return ()


def _legend(bounds: Sequence[float]) -> tuple[LegendEntry, ...]:
    lows = ["< " + f"{bounds[0]:g}", *(f"≥ {bound:g}" for bound in bounds)]
    return tuple(LegendEntry(f"m{number}", words) for number, words in enumerate(lows))


MEASURE_SENTENCES: Final = {
    "advantage": "How much better its rollout was than the others of its group: tokens with a positive advantage "
    "(solid line below) become likelier, those with a negative one (dashed line) less likely. The strongest color "
    "stands for the largest advantage on this page.",
    "gap": "|log p − log q| in nats: p is the trainer's probability of the token before the update, q the sampler's. "
    "Without staleness both come from the same weights, and a gap is numerical; stale tokens have larger ones.",
    "surprise": "−log q in nats, q being the probability with which the token was sampled. It is the estimate of the "
    "policy's entropy at that token that one sample gives: single values say little, their mean is the entropy.",
    "fate": "What became of each token. Tokens without a mark were in the loss.",
}
