"""The lines of rollout files, as docs/reference/rollout-files.md describes them."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import numpy as np
import orjson

from rl_contract.rollout_records import FORMAT, EvaluationRecord, Line, LostRecord, StepRecord, line_of
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.trainer.rollouts.group_records import (
    GroupFacts,
    Pieces,
    TrainedStep,
    fate_totals,
    group_facts,
    group_record,
)
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport, UntrainedGroup
from tinker_atropos.trainer.trajectories.deliveries import read_group

INCOMPLETE = "\ufffd"
MOST_JOINED = 8
"""Tokens that make up one character at most: an emoji of four code points has more, but each of those is complete."""

MOST_REMEMBERED = 2**16
"""Beginnings of characters: Chinese has three for each of 20,000. What a model samples at random is without end."""

TextOf = Callable[[list[int]], str]

ANCHOR = "a"
"""Decoded before each token: some tokenizers strip a space at the start of a text."""


class TokenPieces:
    """Remembers the text of each token that it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._anchor = tokenizer.encode(ANCHOR, add_special_tokens=False).tolist()
        self._before = self._text(self._anchor)
        self._pieces: dict[int, str] = {}
        self._characters: dict[tuple[int, ...], str] = {}

    def of(self, tokens: Sequence[int]) -> list[str]:
        """One text per token; that of a character of several tokens is with the first of them."""
        known = self._pieces
        try:
            pieces = [known[token] for token in tokens]
        except KeyError:
            known |= {token: self._after_anchor([token]) for token in set(tokens) - known.keys()}
            pieces = [known[token] for token in tokens]
        return _joined(pieces, tokens, self._together) if INCOMPLETE in "".join(pieces) else pieces

    def _together(self, tokens: list[int]) -> str:
        """The text of tokens that may be one character."""
        text = self._characters.get(key := tuple(tokens))
        if text is None:
            if len(self._characters) >= MOST_REMEMBERED:
                self._characters.clear()
            text = self._characters[key] = self._after_anchor(tokens)
        return text

    def _after_anchor(self, tokens: list[int]) -> str:
        text = self._text([*self._anchor, *tokens])
        return text.removeprefix(self._before) if text.startswith(self._before) else self._text(tokens)

    def _text(self, tokens: list[int]) -> str:
        return self._tokenizer.verbatim(np.array(tokens, np.int64))


def _joined(pieces: list[str], tokens: Sequence[int], text_of: TextOf) -> list[str]:
    """Tokens that are a part of a character each are decoded together."""
    joined = list(pieces)
    position = 0
    while position < len(joined):
        length, text = 1, joined[position]
        if INCOMPLETE in text:
            length, text = _complete(joined, tokens, position, text_of)
        joined[position : position + length] = [text, *[""] * (length - 1)]
        position += length
    return joined


def _complete(pieces: list[str], tokens: Sequence[int], start: int, text_of: TextOf) -> tuple[int, str]:
    """How many tokens from `start` give a whole text, and the text; 1 and its piece if none do."""
    for length in range(2, min(MOST_JOINED, len(tokens) - start) + 1):
        if INCOMPLETE not in pieces[start + length - 1]:
            break  # the rest of the character never came
        text = text_of(list(tokens[start : start + length]))
        if INCOMPLETE not in text:
            return length, text
    return 1, pieces[start]


TOLD: Final = ("components", "messages")
"""Fields of a rollout that hold whatever the environment sent."""

OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE

Lines = Iterator[Line]
"""They are made one by one, in the thread that writes them: as objects, a large step takes ten times its bytes."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The run whose rollouts they are."""

    run: str
    namespace: str
    uid: str
    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class RolloutLines:
    """Groups of one fate and step are numbered in the order in which their lines are made."""

    run: KeptRun
    config: TrainerSettings
    pieces: Pieces
    _numbers: defaultdict[tuple[int, str], Iterator[int]] = field(default_factory=lambda: defaultdict(itertools.count))

    def of_step(self, step: int, trained: TrainedStep, metrics: Mapping[str, float], at: float) -> Lines:
        found = list(group_facts(trained, self.config))
        yield line_of(
            StepRecord, format=FORMAT, **asdict(self.run), step=step, time=at, metrics=metrics,
            tokens=fate_totals(found),
        )  # fmt: skip
        for facts in found:
            if facts.fate == "dropped":  # the environment's are in the same file
                facts = replace(facts, number=next(self._numbers[step, "dropped"]))  # noqa: PLW2901
            yield group_record(facts, self.pieces)

    def of_evaluation(self, step: int, metrics: Mapping[str, float], at: float) -> Lines:
        yield line_of(EvaluationRecord, step=step, time=at, metrics=metrics)

    def of_report(self, report: RolloutReport, collecting: int, at: float) -> Iterator[tuple[int, Lines]]:
        """The lines of each step that the report is about, while step `collecting` is collected."""
        evaluated: defaultdict[int, list[UntrainedGroup]] = defaultdict(list)
        dropped: list[UntrainedGroup] = []
        for group in report.groups:
            (dropped if group.step is None else evaluated[group.step]).append(group)
        for step, groups in evaluated.items():
            yield step, self._untrained(step, groups, report.environment)
        if dropped or report.lost:
            lines = self._untrained(collecting, dropped, report.environment)
            yield collecting, itertools.chain(lines, _lost(report, at))

    def _untrained(self, step: int, groups: Sequence[UntrainedGroup], environment: int) -> Lines:
        for untrained in groups:
            number = next(self._numbers[step, untrained.fate])
            yield group_record(_facts(untrained, number, environment), self.pieces)


def encoded(record: Line) -> bytes:
    """A line. What an environment says besides is left out if it cannot be written, such as lists in 300 lists."""
    try:
        return orjson.dumps(record, option=OPTIONS)
    except orjson.JSONEncodeError:
        plain = {name: value for name, value in record.items() if name != "item"}
        if rollouts := record.get("rollouts"):
            plain["rollouts"] = [
                {name: value for name, value in rollout.items() if name not in TOLD} for rollout in rollouts
            ]
        return orjson.dumps(plain, option=OPTIONS)


def _facts(untrained: UntrainedGroup, number: int, environment: int) -> GroupFacts:
    told = untrained.group.model_dump()
    group = read_group(told | {"scores": [math.nan if score is None else score for score in told["scores"]]})
    return GroupFacts(
        replace(group, story=replace(group.story, environment=environment)), untrained.fate, number,
        reason=untrained.reason, why=untrained.why, step=untrained.step, sets=untrained.sets, greedy=untrained.greedy,
    )  # fmt: skip


def _lost(report: RolloutReport, at: float) -> Lines:
    for lost in report.lost:
        yield line_of(LostRecord, **lost.model_dump(exclude_none=True), environment=report.environment, time=at)
