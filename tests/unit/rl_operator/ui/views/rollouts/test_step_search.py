"""A text in all steps: what is found, and what is said of what was searched."""

from collections.abc import Iterator
from itertools import count

from tests.unit.rl_operator.rollouts.made_rollouts import group, rollout, source, step

from rl_operator.rollouts.rollout_query import RolloutSteps
from rl_operator.ui.views.rollouts.rollout_address import RolloutAddress
from rl_operator.ui.views.rollouts.step_search import MOST_MATCHES, Clock, SearchAnswer, search_steps

FILES = {
    f"{number}-1": [step(number, {}), group(0, rollout(0.5, f"answer {number}"), rollout(0.0, "no", given="Ask"))]
    for number in range(1, 6)
}


def ticking(seconds: float) -> Clock:
    """Each look at it takes so long."""
    times: Iterator[float] = (seconds * tick for tick in count())
    return lambda: next(times)


def search(text: str, clock: Clock = lambda: 0.0, before: int | None = None, **files: object) -> SearchAnswer:
    found = source(files.get("files", FILES))  # type: ignore[arg-type]  # as made_rollouts takes them
    return search_steps(found, RolloutSteps.of(found), RolloutAddress(q=text, scope="all", before=before), clock)


def test_the_newest_come_first_with_what_is_around() -> None:
    found = search("ANSWER")
    assert [(each.step, each.rollout) for each in found.matches] == [(5, 1), (4, 1), (3, 1), (2, 1), (1, 1)]
    first = found.matches[0]
    assert (first.before, first.found, first.after) == ("sort", "answer", " 5")
    assert found.sentence == "Searched steps 5 to 1 (5 groups) for it in prompts, answers and items."


def test_time_ends_it_and_it_goes_on_from_there() -> None:
    slow = search("answer", ticking(2.0))
    assert (slow.steps, slow.resume) == ([5], 5)
    assert slow.sentence.endswith("older steps were not searched yet.")
    rest = search("answer", before=slow.resume)
    assert [each.step for each in slow.matches + rest.matches] == [5, 4, 3, 2, 1]


def test_a_prompt_counts_once_for_its_group() -> None:
    found = search("SORT")
    assert [(each.step, each.rollout, each.reward) for each in found.matches] == [
        (number, None, None) for number in (5, 4, 3, 2, 1)
    ]


def test_many_matches_end_it() -> None:
    many = {**FILES, "2-1": [group(number, rollout(1.0, "x")) for number in range(MOST_MATCHES + 5)]}
    found = search("x", files=many)
    assert (len(found.matches), found.steps[-1], found.partly, found.resume) == (MOST_MATCHES, 2, True, 2)
    assert "step 2 only in part" in found.sentence


def test_nothing_is_found() -> None:
    assert (search("nowhere").matches, search("answer", before=1).sentence) == ([], "There was nothing to search.")
