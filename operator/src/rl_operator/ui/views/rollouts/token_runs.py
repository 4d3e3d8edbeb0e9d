"""The tokens of a rollout as a page shows them: turns, runs of one fate, and numbers for a script. Pure."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rl_operator.rollouts.rollout_figures import spans
from rl_operator.rollouts.rollout_records import Rollout, SampledSequence
from rl_operator.rollouts.token_ledger import FATE_WORDS
from rl_operator.ui.views.page_text import token_text
from rl_operator.ui.views.rollouts.fate_words import FATE_SENTENCES, known_fate
from rl_operator.ui.views.rollouts.token_marks import marks_of
from rl_operator.ui.views.rollouts.turns import Turn, turns_of

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
    prompt: Sequence[str], rollout: Rollout, sequence: SampledSequence, marking: TokenMarking
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


def _token_turn(sequence: SampledSequence, turn: Turn, marks: Sequence[str], shown: int, *, named: bool) -> TokenTurn:
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


def _runs(sequence: SampledSequence, start: int, end: int) -> Iterator[tuple[int, int, str, int | None]]:
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


def _numbers(rollout: Rollout, sequence: SampledSequence, shown: int) -> str:
    wire = {
        "id": sequence.tokens[:shown],
        "a": _finite(sequence.advantages[:shown]) if sequence.advantages else _one(rollout.advantage),
        "q": _finite((sequence.logprobs or ())[:shown]),
        "p": _finite((sequence.trained_logprobs or ())[:shown]),
    }
    return json.dumps(wire, separators=(",", ":"))


def _finite(values: Sequence[float | None]) -> list[float | None]:
    return [_one(value) for value in values]


def _one(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def mean_surprise(rollout: Rollout) -> float | None:
    """Of its sampled tokens, in nats."""
    known = [
        -value
        for sequence in rollout.sequences
        for value in sequence.logprobs or ()
        if value is not None and math.isfinite(value)
    ]
    return sum(known) / len(known) if known else None
