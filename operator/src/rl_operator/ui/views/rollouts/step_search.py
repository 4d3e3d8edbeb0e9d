"""A text that is looked for in all steps, within limits of time and answers. Pure, apart from the source and the clock.

The newest steps are searched first. What was searched is said, and where it can go on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rl_operator.rollouts.rollout_figures import finite, prompt_of, strings_in, texts_of
from rl_operator.rollouts.rollout_query import RolloutSteps
from rl_operator.rollouts.rollout_records import GroupRecord
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.rollouts.step_reading import StepReading
from rl_operator.ui.views.page_text import value_text
from rl_operator.ui.views.rollouts.rollout_address import RolloutAddress
from rl_operator.ui.views.rollouts.step_groups import ContainsText, is_of_fate

SECONDS: Final = 5.0
MOST_MATCHES: Final = 100
AROUND: Final = 60
"""Characters that are shown before and after a match."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Match:
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

    matches: list[Match] = field(default_factory=list)
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


def search_steps(source: RolloutSource, steps: RolloutSteps, address: RolloutAddress, clock: Clock) -> SearchAnswer:
    """In groups of all fates, unless one is asked for. A step that was begun is searched for as long again."""
    answer = SearchAnswer()
    end = clock() + SECONDS
    for files in steps.newest_first():
        if address.before is not None and files.step >= address.before:
            continue
        if answer.steps and (clock() > end or len(answer.matches) >= MOST_MATCHES):
            answer.resume = answer.steps[-1]
            break
        answer.steps.append(files.step)
        for _, record in StepReading(source, files).records():
            if isinstance(record, GroupRecord) and (not address.fate or is_of_fate(record, address.fate)):
                answer.groups += 1
                answer.matches += _matches(record, files.step, address.q)
            if len(answer.matches) >= MOST_MATCHES or clock() > end + SECONDS:
                answer.partly = True
                break
    return answer


def _matches(record: GroupRecord, step: int, text: str) -> Iterator[Match]:
    search = ContainsText(text)
    for given in (prompt_of(record), *strings_in((record.item,))):
        if search.finds((given,)):
            yield Match(step, record.group, record.fate, None, None, *_around(given, text))
            return
    for number, rollout in enumerate(record.rollouts):
        found = next((each for each in texts_of(record, rollout) if search.finds((each,))), None)
        if found is not None:
            around = _around(found, text)
            yield Match(step, record.group, record.fate, number + 1, finite(rollout.reward), *around)


def _around(found: str, text: str) -> tuple[str, str, str]:
    """What is before a match, the match, and what follows."""
    at = max(0, found.casefold().find(text.casefold()))
    end = at + len(text)
    before, after = found[max(0, at - AROUND) : at], found[end : end + AROUND]
    return value_text(before), value_text(found[at:end]), value_text(after)
