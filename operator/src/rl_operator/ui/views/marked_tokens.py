"""The tokens of a rollout as a page shows them: turns, runs of one fate, marks, and numbers for a script. Pure.

Marks are classes of a style sheet, because nothing else may style a page: `m0` to `m8`. The legend says what they mean.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord
from rl_operator.rollouts.rollout_figures import finite, spans
from rl_operator.rollouts.token_ledger import FATE_SENTENCES, FATE_WORDS, known_fate
from rl_operator.ui.views.page_text import token_text
from rl_operator.ui.views.rollout_turns import RoleSpan, is_given, turns_of

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


def advantages_of(rollout: RolloutRecord, sequence: SequenceRecord) -> Sequence[float | None]:
    """One for each token."""
    if sequence.advantages is not None:
        return sequence.advantages
    return [rollout.advantage] * len(sequence.tokens)


def largest_advantage(group: GroupRecord) -> float:
    """The largest of all rollouts and tokens; what the colors of advantages are measured by. 0 if there is none."""
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


def marks_of(color: str, rollout: RolloutRecord, sequence: SequenceRecord, largest: float) -> Sequence[str]:
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


ODD: Final = "odd"
"""The mark of a token with characters that are not seen as they are."""

EMPTY_PIECE: Final = "·"
"""A token whose character is with the token before it."""


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens of one fate, each with its text and its classes."""

    fate: str
    words: str
    sentence: str
    policy: int | None
    tokens: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TokenTurn:
    """`words`: whose; empty where only one is."""

    words: str
    kind: str
    runs: tuple[TokenRun, ...]


@dataclass(frozen=True, slots=True)
class ShownSequence:
    """`numbers`: JSON for a script, of the tokens that are shown: ids, advantages, logprobs by sampler and trainer."""

    turns: tuple[TokenTurn, ...]
    numbers: str
    shown: int
    total: int


@dataclass(frozen=True, slots=True)
class TokenMarking:
    """`color`: one of rollout_address.COLORS. `largest`: the advantage that has the strongest color. `most`: tokens."""

    color: str
    largest: float
    most: int


def shown_sequence(
    prompt: Sequence[str], rollout: RolloutRecord, sequence: SequenceRecord, marking: TokenMarking
) -> ShownSequence:
    total = len(sequence.tokens)
    shown = min(total, marking.most)
    marks = marks_of(marking.color, rollout, sequence, marking.largest)
    turns = [turn for turn in turns_of(prompt, sequence) if turn.start < shown]
    several = len(turns) > 1
    return ShownSequence(
        turns=tuple(_token_turn(sequence, turn, marks, shown, named=several) for turn in turns),
        numbers=_numbers(rollout, sequence, shown),
        shown=shown,
        total=total,
    )


def _token_turn(
    sequence: SequenceRecord, turn: RoleSpan, marks: Sequence[str], shown: int, *, named: bool
) -> TokenTurn:
    end = min(turn.end, shown)
    runs = tuple(
        TokenRun(
            fate=known_fate(fate),
            words=FATE_WORDS[known_fate(fate)],
            sentence=FATE_SENTENCES[known_fate(fate)],
            policy=policy,
            tokens=tuple(_token(sequence.pieces[index], marks[index]) for index in range(start, stop)),
        )
        for start, stop, fate, policy in _runs(sequence, turn.start, end)
    )
    return TokenTurn(turn.words if named else "", turn.kind, runs)


def _token(piece: str, mark: str) -> tuple[str, str]:
    text, odd = token_text(piece)
    classes = f"{mark} {ODD}".strip() if odd or not piece else mark
    return text or EMPTY_PIECE, classes


def _runs(sequence: SequenceRecord, start: int, end: int) -> Iterator[tuple[int, int, str, int | None]]:
    """Start, end, fate and policy of what lies between: cut wherever one of them changes."""
    policies = sorted(sequence.policy_steps)
    for begin, stop, fate in spans(sequence):
        at, last = max(begin, start), min(stop, end)
        while at < last:
            covering = next(((to, step) for since, to, step in policies if since <= at < to), None)
            following = min((since for since, to, _ in policies if at < since < to), default=last)
            cut = min(last, covering[0] if covering else following)
            yield at, cut, fate, covering[1] if covering else None
            at = cut


def _numbers(rollout: RolloutRecord, sequence: SequenceRecord, shown: int) -> str:
    wire = {
        "id": sequence.tokens[:shown],
        "a": [*map(finite, sequence.advantages[:shown])] if sequence.advantages else finite(rollout.advantage),
        "q": [*map(finite, (sequence.logprobs or ())[:shown])],
        "p": [*map(finite, (sequence.trained_logprobs or ())[:shown])],
    }
    return json.dumps(wire, separators=(",", ":"))


def mean_surprise(rollout: RolloutRecord) -> float | None:
    """The mean over its sampled tokens, in nats."""
    told = (finite(value) for sequence in rollout.sequences for value in sequence.logprobs or ())
    known = [-value for value in told if value is not None]
    return sum(known) / len(known) if known else None
