"""A group and its rollouts as a page shows them: side by side, with their figures and texts. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord
from rl_operator.api.value_text import is_number
from rl_operator.rollouts.rollout_figures import finite, gap, length, prompt_of, staleness
from rl_operator.rollouts.rollout_query import RankedGroup
from rl_operator.rollouts.token_ledger import GROUP_SENTENCES, GROUP_WORDS, TRAINER_REASONS, known_fate
from rl_operator.ui.views.marked_tokens import ShownSequence, TokenMarking, mean_surprise, shown_sequence
from rl_operator.ui.views.page_text import ShownText, figure_text, shown_lines, value_text
from rl_operator.ui.views.rollout_address import RolloutAddress
from rl_operator.ui.views.rollout_turns import ENDS, ShownConversation, conversation_of, turns_of
from rl_operator.ui.views.step_groups import PickedGroup

TOKENS_OF_PAGE: Final = 12_000
"""For all rollouts of a page together."""

TOKENS_OF_GROUP: Final = 60_000
"""If only one group is asked for."""

FEWEST_TOKENS, MOST_TOKENS = 40, 400
"""Of a rollout, on a page of several groups."""

MOST_ROLLOUTS: Final = 32
"""Of a group, on a page of several; of one that is asked for alone, MOST_ROLLOUTS_ALONE."""

MOST_ROLLOUTS_ALONE: Final = 256
MOST_SEQUENCES: Final = 20
MOST_COMPONENTS: Final = 30
LONGEST_QUESTION: Final = 200
FOLDED: Final = 300
"""Characters of a prompt that is shown unfolded."""

MOST_CHARACTERS, MOST_CHARACTERS_ALONE = 4_000, 100_000
"""Of a prompt or a turn."""


@dataclass(frozen=True, slots=True)
class RolloutCard:
    """`verdict`: of a held-out one: right, wrong or partly right."""

    number: int
    figures: tuple[tuple[str, str, str], ...]
    verdict: str
    components: tuple[tuple[str, str], ...]
    sequences: tuple[ShownSequence, ...]
    sequences_left: int
    conversation: ShownConversation | None

    @property
    def tokens_left(self) -> int:
        return sum(each.total - each.shown for each in self.sequences)


@dataclass(frozen=True, slots=True)
class GroupCard:
    """`figures`: name and text. `question`: the end of a prompt that is too long to be shown
    unfolded, else empty. `total`: its rollouts, of which `matching` were asked for, and not all are shown.
    """

    number: int
    fate: str
    words: str
    sentence: str
    details: tuple[tuple[str, str], ...]
    prompt: ShownText
    question: str
    rollouts: tuple[RolloutCard, ...]
    matching: int
    total: int


@dataclass(frozen=True, slots=True)
class _Showing:
    """How the groups of a step are shown: `characters` of each turn, and `rollouts` of one group."""

    step: int
    talks: bool
    marking: TokenMarking
    characters: int
    rollouts: int


def group_cards(chosen: Sequence[PickedGroup], step: int, address: RolloutAddress) -> tuple[list[GroupCard], float]:
    """The cards, and the largest advantage among them, by which its colors are measured."""
    largest = max((each.largest for each in chosen), default=0.0)
    is_alone = address.group is not None
    rollouts, characters = (
        (MOST_ROLLOUTS_ALONE, MOST_CHARACTERS_ALONE) if is_alone else (MOST_ROLLOUTS, MOST_CHARACTERS)
    )
    shown = max(1, sum(min(rollouts, len(each.ranked.rollouts)) for each in chosen))
    few = max(FEWEST_TOKENS, min(MOST_TOKENS, TOKENS_OF_PAGE // shown))
    marking = TokenMarking(address.color, largest, max(MOST_TOKENS, TOKENS_OF_GROUP // shown) if is_alone else few)
    showing = _Showing(step, address.view == "talk", marking, characters, rollouts)
    return [_group_card(each.ranked, showing) for each in chosen], largest


def _group_card(chosen: RankedGroup, showing: _Showing) -> GroupCard:
    record = chosen.record  # the only one that is in memory
    fate = known_fate(record.fate)
    first = record.rollouts[chosen.rollouts[0]] if chosen.rollouts else None
    text = prompt_of(record, first)
    return GroupCard(
        number=record.group,
        fate=fate,
        words=GROUP_WORDS.get(fate, fate),
        sentence=_why(record),
        details=tuple(_details(record)),
        prompt=shown_lines(text, showing.characters),
        question=_question(record, text) if len(text) > FOLDED else "",
        rollouts=tuple(_rollout_card(record, number, showing) for number in chosen.rollouts[: showing.rollouts]),
        matching=len(chosen.rollouts),
        total=len(record.rollouts),
    )


def _question(record: GroupRecord, text: str) -> str:
    """What the user said last; without roles, the end of the prompt."""
    pieces = record.prompt.pieces
    shared = SequenceRecord(tokens=[0] * len(pieces), pieces=pieces, fates=[(0, len(pieces), "prompt")])
    users = [turn for turn in turns_of((), shared) if turn.kind == "user"]
    said = (
        "".join(piece for piece in pieces[users[-1].text_start : users[-1].end] if piece not in ENDS) if users else ""
    )
    return value_text(said.strip()[:LONGEST_QUESTION] or f"…{text[-LONGEST_QUESTION:]}")


def _why(record: GroupRecord) -> str:
    """What became of it, and for what reason."""
    if record.fate != "dropped":
        return GROUP_SENTENCES.get(known_fate(record.fate), "")
    who = "The trainer" if record.reason in TRAINER_REASONS else "The environment"
    why = f": {value_text(record.why)}" if record.why else ""
    return f"{who} dropped it, {value_text(record.reason or 'without a reason')}{why}"


def _details(record: GroupRecord) -> Iterator[tuple[str, str]]:
    rewards = [reward for rollout in record.rollouts if (reward := finite(rollout.reward)) is not None]
    if rewards:
        yield "mean reward", figure_text(sum(rewards) / len(rewards))
    if record.evaluated_as:
        yield "evaluated as", ", ".join(map(value_text, record.evaluated_as))
    if record.item is not None:
        yield "item", value_text(record.item)
    if record.sampling:
        yield "sampled with", ", ".join(f"{value_text(k)} {value_text(v)}" for k, v in _first(record.sampling))
    if record.environment:
        yield "environment", str(record.environment)


def _first(values: Mapping[str, object]) -> list[tuple[str, object]]:
    return list(values.items())[:MOST_COMPONENTS]


def _rollout_card(group: GroupRecord, number: int, showing: _Showing) -> RolloutCard:
    rollout = group.rollouts[number]
    sequences = () if showing.talks else rollout.sequences[:MOST_SEQUENCES]
    return RolloutCard(
        number=number + 1,
        figures=tuple(_figures(rollout, showing.step)),
        verdict=verdict_of(rollout) if group.fate == "evaluated" else "",
        components=tuple((value_text(name), _component(value)) for name, value in _first(rollout.components or {})),
        sequences=tuple(shown_sequence(group.prompt.pieces, rollout, each, showing.marking) for each in sequences),
        sequences_left=0 if showing.talks else len(rollout.sequences) - len(sequences),
        conversation=conversation_of(group, rollout, showing.characters) if showing.talks else None,
    )


def verdict_of(rollout: RolloutRecord) -> str:
    reward = finite(rollout.reward)
    if reward is None:
        return "no reward"
    return "right" if reward >= 1 else "wrong" if reward <= 0 else "partly right"


def _figures(rollout: RolloutRecord, step: int) -> Iterator[tuple[str, str, str]]:
    """Name, value, and what it is; those that are not known are left out, except the reward."""
    yield "reward", figure_text(finite(rollout.reward)), "what the environment gave"
    if (advantage := finite(rollout.advantage)) is not None:
        yield "advantage", figure_text(advantage), "of the rollout within its group"
    yield "length", f"{length(rollout):,}", "sampled tokens"
    if (stale := staleness(rollout, step)) is not None:
        yield "staleness", str(stale), "policy steps between the oldest of its tokens and the weights that were trained"
    if (largest := gap(rollout)) is not None:
        yield "gap", figure_text(largest), "the largest |log p − log q| of its tokens, in nats"
    if (surprise := mean_surprise(rollout)) is not None:
        yield "surprise", figure_text(surprise), "the mean of −log q over its tokens, in nats"


def _component(value: Any) -> str:
    return figure_text(finite(float(value))) if is_number(value) else value_text(value)
