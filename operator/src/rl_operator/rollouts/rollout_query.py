"""Questions to the rollouts of a run: which step, which groups of it, in which order. Pure."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Final, Protocol, Self, get_args

import regex

from rl_contract.rollout_fates import GroupFate
from rl_contract.rollout_records import EvaluationRecord, GroupRecord, KnownRecord, LostRecord, StepRecord, read_record
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.rollout_figures import FIGURES, Fate, Figure, strings_in, texts_of
from rl_operator.rollouts.rollout_source import RolloutSteps, StepFiles
from rl_operator.rollouts.step_reading import StepReading, StepSummary

LONGEST_PATTERN: Final = 1_000
LONGEST_TEXT: Final = 4_000_000
"""Characters. What follows them is not searched."""

TEXT_SECONDS: Final = 2.0
"""For one text."""


@dataclass(frozen=True)
class TextSearch:
    pattern: "regex.Pattern[str]"

    @classmethod
    def of(cls, text: str) -> Self:
        """What --grep asks for. Raises RefusedError."""
        if len(text) > LONGEST_PATTERN:
            raise RefusedError(f"--grep has {len(text):,} characters; {LONGEST_PATTERN:,} are allowed")
        try:
            return cls(regex.compile(text, regex.VERSION0))
        except (regex.error, RecursionError) as error:
            hint = r"put \ before characters that are meant as they are, like \( or \["
            raise RefusedError(f"--grep is {text!r}, which is not a regular expression: {error}; {hint}") from None

    def finds(self, texts: Iterable[str]) -> bool:
        """Raises RefusedError if the pattern takes too long."""
        try:
            return any(self.pattern.search(text[:LONGEST_TEXT], timeout=TEXT_SECONDS) for text in texts)
        except TimeoutError:
            raise RefusedError(
                f"the pattern {self.pattern.pattern!r} takes more than {TEXT_SECONDS:g} seconds on one text: "
                f"repetitions within repetitions, like (a+)+, do; use a simpler one"
            ) from None


MOST_LOST: Final = 1_000
"""Records of lost rollouts that are kept for one answer."""


class RolloutSearch(Protocol):
    def finds(self, texts: Iterable[str], /) -> bool:
        """Whether one of the texts has what is searched for. May raise RefusedError: it takes too long."""
        ...


@dataclass(frozen=True)
class RolloutQuery:
    """`step` None: the newest one that has what is asked for, or with a `search` all steps, newest first.

    `sort`: groups by their first rollout, and the rollouts of each; None: groups by fate, as they are in the file, and
    their rollouts by reward. `limit`: of groups, over all steps.
    """

    step: int | None = None
    fate: Fate | None = None
    sort: Figure | None = None
    ascending: bool = False
    search: RolloutSearch | None = None
    limit: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it asks for a step as a whole."""
        return self.fate is None and self.search is None


@dataclass(frozen=True)
class RankedGroup:
    """A group that was asked for: its line, and the numbers of its rollouts that match, in the order asked for.

    The record is read from the line again when it is shown: as objects, a group takes ten times the memory.
    """

    line: bytes
    rollouts: tuple[int, ...]

    @property
    def record(self) -> GroupRecord:
        record = read_record(self.line)
        assert isinstance(record, GroupRecord), "it was one when it was chosen"
        return record


@dataclass
class StepAnswer:
    """What was asked for of one step. `found`: how many groups match, of which the limit may have left out some."""

    summary: StepSummary
    groups: list[RankedGroup] = field(default_factory=list)
    found: int = 0
    lost: list[tuple[bytes, LostRecord]] = field(default_factory=list)
    step_line: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return not self.found and not self.lost


def answers(steps: RolloutSteps, query: RolloutQuery) -> Iterator[StepAnswer]:
    """Answers from the steps that have what is asked for, each as soon as it has been read. Raises RefusedError."""
    left = query.limit
    for files in _asked_for(steps, query):
        answer = _step_answer(steps, files, query, left)
        if answer.is_empty and query.step is None:
            continue
        yield answer
        left = None if left is None else left - len(answer.groups)
        if query.search is None or left == 0:
            return


def streamed(steps: RolloutSteps, query: RolloutQuery) -> Iterator[bytes]:
    """The lines of what is asked for, while it is read and as it is in the files: nothing is sorted."""
    left = query.limit
    for files in _asked_for(steps, query):
        sent = False
        for line, record in wanted_records(StepReading(steps.source, files), query):
            if isinstance(record, GroupRecord) and left is not None:
                if left == 0:
                    return
                left -= 1
            yield line
            sent = True
        if sent and query.search is None:
            return


def _asked_for(steps: RolloutSteps, query: RolloutQuery) -> Iterator[StepFiles]:
    """The steps to look into, until one has something."""
    if query.step is not None:
        yield steps.step(query.step)
    elif query.is_plain:
        yield newest_finished(steps)
    else:
        yield from steps.newest_first()


def newest_finished(steps: RolloutSteps) -> StepFiles:
    """The newest step that was trained or evaluated, which is more than what environments report of it before; without
    one, the newest step. No more of a file is read than it takes to know.
    """
    for files in steps.newest_first():
        records = (record for _, record in StepReading(steps.source, files).records())
        if any(
            isinstance(each, StepRecord) or (isinstance(each, GroupRecord) and each.fate == "evaluated")
            for each in records
        ):
            return files
    return next(steps.newest_first())


def _step_answer(steps: RolloutSteps, files: StepFiles, query: RolloutQuery, limit: int | None) -> StepAnswer:
    """Reads all of the step's files, once. No more groups than the limit are in memory."""
    reading = StepReading(steps.source, files)
    answer = StepAnswer(reading.summary)

    def ranked() -> Iterator[tuple[float, RankedGroup]]:
        for line, record in wanted_records(reading, query):
            match record:
                case StepRecord():
                    answer.step_line = line
                case LostRecord():
                    answer.lost += [(line, record)] if len(answer.lost) < MOST_LOST else []
                case GroupRecord():
                    answer.found += 1
                    rollouts = in_order(record, files.step, query)
                    yield _rank(record, rollouts, files.step, query), RankedGroup(line, rollouts)

    largest = partial(sorted, reverse=True) if limit is None else partial(heapq.nlargest, limit)
    answer.groups = [group for _, group in largest(ranked(), key=itemgetter(0))]
    return answer


def wanted_records(reading: StepReading, query: RolloutQuery) -> Iterator[tuple[bytes, KnownRecord]]:
    """As they are in the files: groups and losses that match, and the step's own record unless some fate or text is
    asked for.
    """
    return ((line, record) for line, record in reading.records() if _is_wanted(record, query))


def _is_wanted(record: KnownRecord, query: RolloutQuery) -> bool:
    fate, search = query.fate, query.search
    match record:
        case StepRecord() | EvaluationRecord():
            return query.is_plain
        case LostRecord():
            told = strings_in((record.reason, record.why, record.item))
            return fate in (None, "lost") and (search is None or search.finds(told))
        case GroupRecord():
            return fate in (None, record.fate) and (search is None or any(_matching(record, search)))


def _matching(record: GroupRecord, search: RolloutSearch) -> Iterator[bool]:
    """For each rollout, whether its texts have the pattern."""
    return (search.finds(texts_of(record, rollout)) for rollout in record.rollouts)


def in_order(record: GroupRecord, step: int, query: RolloutQuery) -> tuple[int, ...]:
    """The numbers of the rollouts that match, in the order that was asked for; those without the figure are last."""
    figure_of = FIGURES[query.sort or "reward"]
    sign = 1.0 if query.ascending and query.sort else -1.0

    def key(number: int) -> tuple[bool, float]:
        value = figure_of(record.rollouts[number], step)
        return value is None, 0.0 if value is None else sign * value

    found: Iterable[int] = range(len(record.rollouts))
    if query.search is not None:
        found = [number for number, matches in enumerate(_matching(record, query.search)) if matches]
    return tuple(sorted(found, key=key))


_FATE_ORDER: Final = {fate: place for place, fate in enumerate(get_args(GroupFate))}
"""Of groups in no other order: what was trained is what most people look for."""


def _rank(record: GroupRecord, rollouts: tuple[int, ...], step: int, query: RolloutQuery) -> float:
    """The rank of the group's first rollout; larger comes first."""
    if query.sort is None:
        return -float(_FATE_ORDER.get(record.fate, len(_FATE_ORDER)))
    value = FIGURES[query.sort](record.rollouts[rollouts[0]], step) if rollouts else None
    return float("-inf") if value is None else -value if query.ascending else value
