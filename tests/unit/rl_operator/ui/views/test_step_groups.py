"""Which groups of a step a page shows, in which order."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, group, lost, rollout, source, step

from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.ui.views.rollout_address import RolloutAddress, read_address
from rl_operator.ui.views.step_groups import (
    MOST_MATCHES,
    Clock,
    HeldFiles,
    SearchAnswer,
    StepGroups,
    chosen_lines,
    read_groups,
    search_steps,
)

RECORDS: list[dict[str, Any]] = [
    lost("timeout", count=3),
    step(3, {"trained": 18}),
    group(0, rollout(0.0, "one"), rollout(1.0, "two")),
    group(1, rollout(0.25, "Three"), rollout(0.5, "four")),
    group(0, rollout(1.0, "five"), fate="dropped", reason="stale", why="too old"),
    group(0, rollout(None), fate="eaten"),
    group(0, rollout(1.0, "right", "evaluated"), fate="evaluated", step=3),
    group(1, rollout(0.0, "wrong", "evaluated"), fate="evaluated", step=3),
]


def read(records: list[dict[str, Any]] = RECORDS, found: MemorySource | None = None, **asked: str) -> StepGroups:
    address, faults = read_address(asked)
    assert not faults
    found = found or source({"3-1": records})
    return read_groups(HeldFiles(found), RolloutSteps.of(found).step(3), address)


def shown(found: StepGroups) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(each.ranked.record.fate, each.ranked.record.group, each.ranked.rollouts) for each in found.groups]


ALL = [("trained", 0, (1, 0)), ("trained", 1, (1, 0)), ("dropped", 0, (0,)), ("eaten", 0, (0,))]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ALL),
        ({"fate": "dropped"}, ALL[2:3]),
        ({"fate": "unknown"}, ALL[3:]),
        ({"fate": "evaluated"}, [("evaluated", 0, (0,)), ("evaluated", 1, (0,))]),
        ({"fate": "lost"}, []),
        ({"reward": "0.25-0.5"}, [("trained", 1, (1, 0))]),
        ({"reward": "1-1"}, [("trained", 0, (1,)), ("dropped", 0, (0,))]),
        ({"q": "THREE"}, [("trained", 1, (0,))]),
        ({"q": "sort"}, ALL),
        ({"q": "sort", "scope": "all"}, ALL),
        ({"q": "nothing"}, []),
        ({"group": "0", "fate": "trained"}, ALL[:1]),
        ({"sort": "reward-asc"}, [("trained", 0, (0, 1)), ("trained", 1, (0, 1)), ALL[2], ALL[3]]),
        ({"sort": "length"}, [("trained", 1, (0, 1)), ALL[2], ("trained", 0, (0, 1)), ALL[3]]),
        ({"page": "2"}, []),
    ],
    ids=str,
)
def test_what_is_asked_for(asked: dict[str, str], expected: list[tuple[str, int, tuple[int, ...]]]) -> None:
    assert shown(read(**asked)) == expected


def test_pages_have_eight_groups_each_and_read_only_the_files_of_the_step_once() -> None:
    many = source({"3-1": [step(3, {}), *(group(number, rollout(number / 20)) for number in range(20))]})
    found = [read(found=many, sort="reward", page=str(page)) for page in (1, 2, 3)]
    assert [[each.ranked.record.group for each in page.groups] for page in found] == [
        list(range(19, 11, -1)), list(range(11, 3, -1)), list(range(3, -1, -1)),
    ]  # fmt: skip
    assert [page.found for page in found] == [20, 20, 20]
    assert len(many.reads) == 3


def test_without_a_figure_trained_ones_come_first() -> None:
    records = [group(0, rollout(1.0), fate="dropped", reason="equal"), group(0, rollout(1.0)), group(1, rollout(0.0))]
    assert [each[:2] for each in shown(read(records))] == [("trained", 0), ("trained", 1), ("dropped", 0)]


def test_counts_are_of_the_fate_whatever_else_is_asked_for() -> None:
    found = read(reward="1-1", q="five")
    assert (found.found, found.rollouts, dict(found.rewards), found.unrewarded) == (
        1, 1, {0.0: 1, 1.0: 2, 0.25: 1, 0.5: 1}, 1,
    )  # fmt: skip
    held_out = read(fate="evaluated")
    assert (held_out.right, held_out.wrong) == (1, 1)


def test_a_step_that_was_only_evaluated_shows_that() -> None:
    assert read(RECORDS[-2:]).fate == "evaluated"
    assert read(RECORDS[1:2]).fate == ""


def test_lost_ones_are_listed_if_they_are_asked_for() -> None:
    assert [each.count for each in read(fate="lost").lost] == [3]
    assert read().lost == []


@pytest.mark.parametrize(
    ("asked", "records"),
    [
        ({}, RECORDS),
        ({"fate": "dropped"}, RECORDS[4:5]),
        ({"reward": "0-0.3"}, RECORDS[2:4]),
        ({"fate": "lost"}, RECORDS[:1]),
        ({"fate": "lost", "q": "timeout"}, RECORDS[:1]),
        ({"fate": "lost", "q": "nothing"}, []),
    ],
    ids=str,
)
def test_downloads_have_the_lines_of_the_files(asked: dict[str, str], records: list[dict[str, Any]]) -> None:
    found = source({"3-1": RECORDS})
    address: RolloutAddress = read_address(asked)[0]
    lines = b"".join(chosen_lines(found, RolloutSteps.of(found).step(3), address))
    assert [json.loads(line) for line in lines.splitlines()] == records


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
    return search_steps(RolloutSteps.of(found), RolloutAddress(q=text, scope="all", before=before), clock)


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
