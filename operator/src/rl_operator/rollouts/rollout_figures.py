"""Figures and texts of a rollout: what readers sort by, search and show. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from rl_contract.rollout_fates import GroupFate
from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord
from rl_operator.rollouts.token_ledger import UNKNOWN, known_fate

Figure = Literal["reward", "advantage", "length", "gap", "staleness"]
"""`length`: sampled tokens. `gap`: the largest |log p - log q| of a token, p by the trainer and q by the sampler."""

Fate = Literal[GroupFate, "lost"]
"""Of a group; of `lost` ones only the reason is kept."""


GIVEN: Final = frozenset({"prompt", "not_sampled"})
"""Fates of tokens that the policy did not sample."""


def spans(sequence: SequenceRecord) -> Iterator[tuple[int, int, str]]:
    """Start, end and fate, in order, without overlaps: they cover all tokens, whatever the file says."""
    at, size = 0, len(sequence.tokens)
    for start, end, fate in sequence.fates:
        begin, stop = max(start, at), min(end, size)
        if begin >= stop:
            continue
        if begin > at:
            yield at, begin, UNKNOWN
        yield begin, stop, fate
        at = stop
    if at < size:
        yield at, size, UNKNOWN


def tokens_by_fate(group: GroupRecord) -> Counter[str]:
    """Without the prompt that the group shares."""
    counted = Counter[str]()
    for rollout in group.rollouts:
        for sequence in rollout.sequences:
            for start, end, fate in spans(sequence):
                counted[known_fate(fate)] += end - start
    return counted


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def length(rollout: RolloutRecord) -> int:
    """Sampled tokens."""
    all_spans = (span for sequence in rollout.sequences for span in spans(sequence))
    return sum(end - start for start, end, fate in all_spans if fate not in GIVEN)


def gap(rollout: RolloutRecord) -> float | None:
    """The largest absolute difference of a token's logprobs at sampling and at training, in nats."""
    pairs = (
        abs(sampled - trained)
        for sequence in rollout.sequences
        for sampled, trained in zip(sequence.logprobs or (), sequence.trained_logprobs or (), strict=False)
        if sampled is not None and trained is not None
    )
    return max(filter(math.isfinite, pairs), default=None)


def staleness(rollout: RolloutRecord, step: int) -> int | None:
    """Policy steps between the oldest of its tokens' policies and the weights that were trained, which are those after
    the step before.
    """
    known = [policy for sequence in rollout.sequences for _, _, policy in sequence.policy_steps]
    return max(0, step - 1 - min(known)) if known else None


FIGURES: Final[Mapping[Figure, Callable[[RolloutRecord, int], float | None]]] = {
    "reward": lambda rollout, _step: finite(rollout.reward),
    "advantage": lambda rollout, _step: finite(rollout.advantage),
    "length": lambda rollout, _step: length(rollout),
    "gap": lambda rollout, _step: gap(rollout),
    "staleness": staleness,
}
"""Of a rollout in a step."""


def prompt_of(group: GroupRecord, rollout: RolloutRecord | None = None) -> str:
    """What the policy was given at first: the shared part, and the rest of a rollout's own."""
    own = rollout.sequences[0] if rollout and rollout.sequences else None
    return "".join((*group.prompt.pieces, *(own.pieces[: _prompt_end(own)] if own else ())))


def _prompt_end(sequence: SequenceRecord) -> int:
    for start, _, fate in spans(sequence):
        if fate != "prompt":
            return start
    return len(sequence.tokens)


def answer_of(rollout: RolloutRecord) -> str:
    """What came after the first prompt: the policy's words, and those of tools and users between them."""
    return "\n".join("".join(sequence.pieces[_prompt_end(sequence) :]) for sequence in rollout.sequences)


def texts_of(group: GroupRecord, rollout: RolloutRecord) -> Iterator[str]:
    """Everything of a rollout that a search looks into."""
    if not rollout.sequences:
        yield prompt_of(group)
    for sequence in rollout.sequences:
        yield "".join((*group.prompt.pieces, *sequence.pieces))
    yield from strings_in(rollout.messages or ())
    yield from strings_in((group.item,))


def strings_in(values: Iterable[object]) -> Iterator[str]:
    """All texts in values of JSON, of any depth."""
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, (dict, list)):
                waiting.append(iter(value.values() if isinstance(value, dict) else value))
                break
        else:
            waiting.pop()
