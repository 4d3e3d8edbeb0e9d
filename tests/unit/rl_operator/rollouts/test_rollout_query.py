import json
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, group, lost, rollout, source, step

from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts import rollout_query
from rl_operator.rollouts.rollout_query import (
    LONGEST_TEXT,
    RolloutQuery,
    StepAnswer,
    TextSearch,
    answers,
    streamed,
)
from rl_operator.rollouts.rollout_source import RolloutSteps

EVALUATED = group(0, rollout(0.5, "ab", "evaluated"), fate="evaluated", step=2)


def made() -> MemorySource:
    return source({
        "0-1": [group(0, rollout(0.1, "zero", "evaluated"), fate="evaluated", step=0)],
        "1-1": [
            step(1, {"trained": 10}),
            group(0, rollout(0.5, "ab", gap=0.5), rollout(0.9, "abc", gap=0.1)),
            group(1, rollout(0.2, "abcd", gap=0.2, policy=0), rollout(1.0, "x", gap=0.9)),
        ],
        "2-1": [
            lost("timeout", item="slow one"),
            step(2, {"trained": 5}),
            group(0, rollout(0.6, "bc"), rollout(0.6, "cat")),
            EVALUATED,
        ],
        "3-1": [lost("raised"), group(0, rollout(1.0, "same"), fate="dropped", reason="equal", why="all equal")],
    })  # fmt: skip


def ask(found: MemorySource, **query: Any) -> list[StepAnswer]:
    return list(answers(RolloutSteps.of(found), RolloutQuery(**query)))


def shown(found: MemorySource, **query: Any) -> list[tuple[int, int, tuple[int, ...]]]:
    """Step and number of each group, and the numbers of its rollouts."""
    if "grep" in query:
        query["search"] = TextSearch.of(query.pop("grep"))
    return [(a.summary.step, g.record.group, g.rollouts) for a in ask(found, **query) for g in a.groups]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, [(2, 0, (0, 1)), (2, 0, (0,))], id="the newest that was trained"),
        pytest.param({"step": 1}, [(1, 0, (1, 0)), (1, 1, (1, 0))], id="by reward within a group"),
        pytest.param({"step": 1, "sort": "reward"}, [(1, 1, (1, 0)), (1, 0, (1, 0))], id="by the best rollout"),
        pytest.param({"step": 1, "sort": "reward", "ascending": True}, [(1, 1, (0, 1)), (1, 0, (0, 1))], id="worst"),
        pytest.param({"step": 1, "sort": "length"}, [(1, 1, (0, 1)), (1, 0, (1, 0))], id="longest"),
        pytest.param({"step": 1, "sort": "gap", "limit": 1}, [(1, 1, (1, 0))], id="largest gap"),
        pytest.param({"step": 1, "sort": "advantage"}, [(1, 0, (0, 1)), (1, 1, (0, 1))], id="unknown to all"),
        pytest.param({"grep": "^sortab"}, [(2, 0, (0,)), (1, 0, (1, 0)), (1, 1, (0,))], id="all steps, newest first"),
        pytest.param({"grep": "ab", "limit": 2}, [(2, 0, (0,)), (1, 0, (1, 0))], id="as many as asked for"),
        pytest.param({"grep": "ab", "step": 1}, [(1, 0, (1, 0)), (1, 1, (0,))], id="in one step"),
        pytest.param({"grep": "nowhere"}, [], id="nowhere"),
        pytest.param({"fate": "evaluated"}, [(2, 0, (0,))], id="the newest evaluation"),
        pytest.param({"fate": "dropped"}, [(3, 0, (0,))], id="dropped by the environment"),
        pytest.param({"fate": "no_advantage"}, [], id="none of this fate"),
    ],
)
def test_which_groups_are_shown(query: dict[str, Any], expected: list[Any]) -> None:
    assert shown(made(), **query) == expected


def test_the_limit_leaves_out_and_says_so() -> None:
    [answer] = ask(made(), step=1, limit=1)
    assert (len(answer.groups), answer.found) == (1, 2)


def test_what_was_lost() -> None:
    [answer] = ask(made(), fate="lost")
    assert [record.reason for _, record in answer.lost] == ["raised"]
    [found] = ask(made(), fate="lost", search=TextSearch.of("slow"))
    assert (found.summary.step, [record.item for _, record in found.lost]) == (2, ["slow one"])


def test_a_step_without_anything_that_matches_still_says_what_it_was() -> None:
    [answer] = ask(made(), step=1, fate="dropped")
    assert answer.is_empty
    assert answer.summary.groups == {"trained": 2}


def test_only_reports_of_environments() -> None:
    """No step is trained yet."""
    assert shown(source({"1-1": [group(0, rollout(1.0), fate="dropped", reason="equal")]})) == [(1, 0, (0,))]


@pytest.mark.parametrize(
    ("query", "records"),
    [
        ({}, ["lost", "step", "group", "group"]),
        ({"step": 3}, ["lost", "group"]),
        ({"step": 1, "limit": 1}, ["step", "group"]),
        ({"fate": "lost"}, ["lost"]),
        ({"search": TextSearch.of("zero|cat")}, ["group", "group"]),
    ],
)
def test_lines_as_they_are_in_the_files(query: dict[str, Any], records: list[str]) -> None:
    found = made()
    lines = list(streamed(RolloutSteps.of(found), RolloutQuery(**query)))
    assert [json.loads(each)["record"] for each in lines] == records
    if query == {}:
        assert json.loads(lines[-1]) == EVALUATED


@pytest.mark.parametrize("query", [{}, {"search": TextSearch.of("ab")}, {"fate": "evaluated"}, {"step": 2}])
def test_no_file_is_fetched_twice(query: dict[str, Any]) -> None:
    for answer in (answers, streamed):
        found = made()
        list(answer(RolloutSteps.of(found), RolloutQuery(**query)))
        assert len(found.reads) == len(set(found.reads)) > 0


@pytest.mark.parametrize(
    ("pattern", "texts", "found"),
    [
        ("a.c", ["xx", "abc"], True),
        ("ABC", ["abc"], False),
        ("(?i)ABC", ["abc"], True),
        (r"^\d+$", ["12 3"], False),
        ("b", ["a", "", "c"], False),
        ("x", ["a" * LONGEST_TEXT + "x"], False),
        ("a", [], False),
    ],
)
def test_search(pattern: str, texts: list[str], found: bool) -> None:
    assert TextSearch.of(pattern).finds(texts) is found


def test_a_pattern_that_takes_exponential_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_query, "TEXT_SECONDS", 0.05)
    with pytest.raises(RefusedError, match=r"takes more than 0\.05 seconds on one text"):
        TextSearch.of(r"(a|aa|a?a)+\1$").finds(["a" * 200 + "b"])


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        *((each, "which is not a regular expression") for each in ("(", "*a", "[z-a]", "\\")),
        ("a" * 1_001, r"--grep has 1,001 characters; 1,000 are allowed"),
    ],
)
def test_what_is_no_pattern(pattern: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        TextSearch.of(pattern)
