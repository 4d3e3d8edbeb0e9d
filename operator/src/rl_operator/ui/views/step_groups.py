"""The groups of a step that a page shows, and a text that is looked for in all steps. Pure, apart from the source.

A step may be larger than anyone wants in memory: it is read once for what is in it and in which order, and once more
for the lines of the groups that are shown.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rl_contract.rollout_records import GroupRecord, KnownRecord, LostRecord
from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.rollout_figures import FIGURES, finite, prompt_of, strings_in, texts_of
from rl_operator.rollouts.rollout_query import RankedGroup, RolloutQuery, in_order
from rl_operator.rollouts.rollout_source import RolloutListing, RolloutSource, RolloutSteps, StepFiles
from rl_operator.rollouts.step_reading import StepReading, StepSummary
from rl_operator.rollouts.token_ledger import FATE_WORDS, known_fate
from rl_operator.ui.views.marked_tokens import largest_advantage
from rl_operator.ui.views.page_text import value_text
from rl_operator.ui.views.rollout_address import RolloutAddress

EVALUATED: Final = "evaluated"
LOST: Final = "lost"
FATE_ORDER: Final = tuple(FATE_WORDS)
GROUPS_PER_PAGE: Final = 8
EVALUATED_PER_PAGE: Final = 40
"""They mostly have one rollout each."""

MOST_LOST: Final = 200
MOST_REWARDS: Final = 10_000
"""Different ones that are counted."""


class ContainsText:
    """Implements `rollout_query.RolloutSearch`: a text as it is, in either case."""

    def __init__(self, text: str) -> None:
        self._text = text.casefold()

    def finds(self, texts: Iterable[str], /) -> bool:
        return any(self._text in text.casefold() for text in texts)


class PickedGroup(NamedTuple):
    """A group that is shown: `largest` is its largest advantage."""

    ranked: RankedGroup
    largest: float


@dataclass
class StepGroups:
    """`rewards`: of the rollouts of the chosen fate, whatever else was asked for. `found`: groups that match."""

    summary: StepSummary
    fate: str
    rewards: Counter[float] = field(default_factory=Counter)
    unrewarded: int = 0
    found: int = 0
    rollouts: int = 0
    groups: list[PickedGroup] = field(default_factory=list)
    lost: list[LostRecord] = field(default_factory=list)
    right: int = 0
    wrong: int = 0

    def count_rewards(self, record: GroupRecord) -> None:
        for rollout in record.rollouts:
            reward = finite(rollout.reward)
            if reward is None:
                self.unrewarded += 1
            elif reward in self.rewards or len(self.rewards) < MOST_REWARDS:
                self.rewards[reward] += 1
                self.right += reward >= 1
                self.wrong += reward <= 0


class _Place(NamedTuple):
    """Where a group is in the order; smaller comes first. `number`: of the group in its files."""

    rank: float
    number: int
    rollouts: tuple[int, ...]


class HeldFiles:
    """A source that reads each file of a step once: both passes see the same."""

    def __init__(self, source: RolloutSource) -> None:
        self._source = source
        self._held: dict[str, bytes] = {}

    @property
    def where(self) -> str:
        return self._source.where

    def listing(self) -> RolloutListing:
        return self._source.listing()

    def content(self, name: str, begin: int = 0) -> bytes:
        if name not in self._held:
            self._held[name] = self._source.content(name)
        return self._held[name][begin:]

    def keep(self, files: StepFiles) -> None:
        """Read now what is there of these."""
        for file in files.files.values():
            with suppress(GoneError):  # whoever reads it is told
                self.content(file.name)


def read_groups(source: RolloutSource, files: StepFiles, address: RolloutAddress) -> StepGroups:
    """Without a fate: all but evaluated groups; those, too, if the step has nothing else. The source is asked for each
    file several times.
    """
    found = _read(source, files, address, address.fate)
    has_others = sum(found.summary.groups.values()) > found.summary.groups[EVALUATED] or found.summary.lost.counts
    if address.fate or has_others or not found.summary.groups[EVALUATED]:
        return found
    return _read(source, files, address, EVALUATED)


def _read(source: RolloutSource, files: StepFiles, address: RolloutAddress, fate: str) -> StepGroups:
    reading = StepReading(source, files)
    found = StepGroups(reading.summary, fate)
    matching = matcher(address, files.step)
    places = []
    for number, record in enumerate(_of_interest(reading, found)):
        if not is_of_fate(record, fate) or (address.group is not None and record.group != address.group):
            continue
        found.count_rewards(record)
        rollouts = matching(record)
        if rollouts is not None:
            places.append(_Place(_rank(record, rollouts, files.step, address), number, rollouts))
            found.rollouts += len(rollouts)
    found.found = len(places)
    size = page_size(fate)
    shown = sorted(places)[(address.page - 1) * size : address.page * size]
    found.groups = _chosen(source, files, shown)
    return found


def page_size(fate: str) -> int:
    return EVALUATED_PER_PAGE if fate == EVALUATED else GROUPS_PER_PAGE


def is_of_fate(record: GroupRecord, fate: str) -> bool:
    known = known_fate(record.fate)
    return known == fate if fate else known != EVALUATED


Matcher = Callable[[GroupRecord], tuple[int, ...] | None]
"""The numbers of a group's rollouts that are asked for, in their order; None: the group is not."""


def matcher(address: RolloutAddress, step: int) -> Matcher:
    """A group without rollouts matches if nothing is asked for."""
    figure, ascending = address.order
    search = ContainsText(address.q) if address.q and address.scope == "" else None
    query = RolloutQuery(step=step, sort=figure, ascending=ascending)

    def matches(record: GroupRecord, number: int) -> bool:
        rollout = record.rollouts[number]
        fits = address.reward is None or finite(rollout.reward) in address.reward
        return fits and (search is None or search.finds(texts_of(record, rollout)))

    def matching(record: GroupRecord) -> tuple[int, ...] | None:
        found = tuple(number for number in in_order(record, step, query) if matches(record, number))
        return found if found or not (record.rollouts or address.reward or search) else None

    return matching


def _of_interest(reading: StepReading, found: StepGroups) -> Iterator[GroupRecord]:
    """The groups; what was lost is kept, the first of it."""
    for _, record in reading.records():
        if isinstance(record, GroupRecord):
            yield record
        elif isinstance(record, LostRecord) and found.fate == LOST and len(found.lost) < MOST_LOST:
            found.lost.append(record)


def _rank(record: GroupRecord, rollouts: tuple[int, ...], step: int, address: RolloutAddress) -> float:
    """By the first rollout; groups without the figure are last. Without a figure, trained ones come first."""
    figure, ascending = address.order
    if figure is None:
        return float(FATE_ORDER.index(known_fate(record.fate)))
    value = FIGURES[figure](record.rollouts[rollouts[0]], step) if rollouts else None
    return float("inf") if value is None else value if ascending else -value


def _chosen(source: RolloutSource, files: StepFiles, places: list[_Place]) -> list[PickedGroup]:
    """In the order of their places. Reading ends with the last of them."""
    wanted = {place.number: place for place in places}
    if not wanted:
        return []
    found: dict[int, PickedGroup] = {}
    groups = (each for each in StepReading(source, files).records() if isinstance(each[1], GroupRecord))
    for number, (line, record) in enumerate(groups):
        if number in wanted:
            assert isinstance(record, GroupRecord), "others were left out"
            found[number] = PickedGroup(RankedGroup(line, wanted[number].rollouts), largest_advantage(record))
        if len(found) == len(wanted):
            break
    return [found[place.number] for place in places if place.number in found]


def chosen_lines(source: RolloutSource, files: StepFiles, address: RolloutAddress) -> Iterator[bytes]:
    """What a download has: the lines as they are in the files. All records of the step, if nothing is asked for."""
    is_plain = not (address.fate or address.q or address.reward or address.group is not None)
    matching = matcher(address, files.step)
    for line, record in StepReading(source, files).records():
        if is_plain or _is_asked_for(record, address, matching):
            yield line + b"\n"


def _is_asked_for(record: KnownRecord, address: RolloutAddress, matching: Matcher) -> bool:
    match record:
        case GroupRecord():
            of_group = address.group is None or record.group == address.group
            return of_group and is_of_fate(record, address.fate) and matching(record) is not None
        case LostRecord():
            search = ContainsText(address.q) if address.q else None
            told = strings_in((record.reason, record.why, record.item))
            return address.fate == LOST and (search is None or search.finds(told))
    return False


SEARCH_SECONDS: Final = 5.0
MOST_MATCHES: Final = 100
AROUND: Final = 60
"""Characters that are shown before and after a match."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`rollout` None: it is in what all rollouts of the group were given; `reward` is None then."""

    step: int
    group: int
    fate: str
    rollout: int | None
    reward: float | None
    before: str
    found: str
    after: str


@dataclass
class SearchAnswer:
    """`steps`: those that were searched, newest first. `resume`: the step below which it can go on; None: all done."""

    matches: list[TextMatch] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    groups: int = 0
    resume: int | None = None
    partly: bool = False
    """The last step has more groups than were searched."""

    @property
    def sentence(self) -> str:
        if not self.steps:
            return "There was nothing to search."
        first, last = self.steps[0], self.steps[-1]
        which = f"step {first}" if first == last else f"steps {first} to {last}"
        groups = f"{self.groups:,} group{'' if self.groups == 1 else 's'}"
        partly = f"; step {last} only in part, because it is large or has enough matches" if self.partly else ""
        rest = "" if self.resume is None else "; older steps were not searched yet"
        return f"Searched {which} ({groups}) for it in prompts, answers and items{partly}{rest}."


def search_steps(steps: RolloutSteps, address: RolloutAddress, clock: Clock) -> SearchAnswer:
    """In groups of all fates, unless one is asked for. A step that was begun is searched for as long again."""
    answer = SearchAnswer()
    end = clock() + SEARCH_SECONDS
    for files in steps.newest_first():
        if address.before is not None and files.step >= address.before:
            continue
        if answer.steps and (clock() > end or len(answer.matches) >= MOST_MATCHES):
            answer.resume = answer.steps[-1]
            break
        answer.steps.append(files.step)
        for _, record in StepReading(steps.source, files).records():
            if isinstance(record, GroupRecord) and (not address.fate or is_of_fate(record, address.fate)):
                answer.groups += 1
                answer.matches += _matches(record, files.step, address.q)
            if len(answer.matches) >= MOST_MATCHES or clock() > end + SEARCH_SECONDS:
                answer.partly = True
                break
    return answer


def _matches(record: GroupRecord, step: int, text: str) -> Iterator[TextMatch]:
    search = ContainsText(text)
    for given in (prompt_of(record), *strings_in((record.item,))):
        if search.finds((given,)):
            yield TextMatch(step, record.group, record.fate, None, None, *_around(given, text))
            return
    for number, rollout in enumerate(record.rollouts):
        found = next((each for each in texts_of(record, rollout) if search.finds((each,))), None)
        if found is not None:
            around = _around(found, text)
            yield TextMatch(step, record.group, record.fate, number + 1, finite(rollout.reward), *around)


def _around(found: str, text: str) -> tuple[str, str, str]:
    """What is before a match, the match, and what follows."""
    at = max(0, found.casefold().find(text.casefold()))
    end = at + len(text)
    before, after = found[max(0, at - AROUND) : at], found[end : end + AROUND]
    return value_text(before), value_text(found[at:end]), value_text(after)
