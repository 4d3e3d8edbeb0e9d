"""The rule: what must never be called collapse, and what always is."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.trainer.reporting.collapse import (
    EXPECTED_MIXED,
    FALLEN_BELOW,
    MIN_ROW,
    REWARD_GROUPS,
    CollapseWatch,
)
from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade

Report = tuple[GroupsMade, float | None]

MIXED = GroupsMade(kept=1)
EQUAL = GroupsMade(equal=1)
WITHHELD = GroupsMade(withheld=1)

COUNTS = st.integers(0, 40)
MADE = st.builds(GroupsMade, COUNTS, COUNTS, COUNTS)
REPORTS = st.lists(st.tuples(MADE, st.none() | st.floats(-1, 1)), max_size=60)


def found(reports: Iterable[Report]) -> str | None:
    """The first sentence; the step is the report's number."""
    watch = CollapseWatch()
    sentences = (watch.report(made, reward, step) for step, (made, reward) in enumerate(reports))
    return next((sentence for sentence in sentences if sentence), None)


def row_of(reports: list[Report]) -> float:
    """Equal groups since the last report with a mixed one."""
    last = max((index for index, (made, _) in enumerate(reports) if made.kept), default=-1)
    return sum(made.equal + (0 if reward is None else made.withheld) for made, reward in reports[last + 1 :])


@pytest.mark.parametrize("at_once", [1, 10])
@pytest.mark.parametrize("kind", ["equal", "withheld"])
def test_a_fallen_reward_is_told_after_so_many_groups(kind: str, at_once: int) -> None:
    """Of those that an environment withholds, the reward may come with several at once."""
    watch = CollapseWatch()
    for _ in range(30):
        watch.report(MIXED, 0.8, 3)
    groups = 0
    while watch.fallen is None and groups < 10 * MIN_ROW:
        watch.report(GroupsMade(**{kind: at_once}), 0.0, 3)
        groups += at_once
    assert groups <= MIN_ROW + REWARD_GROUPS


@pytest.mark.parametrize("equal", [EQUAL, WITHHELD])
def test_a_policy_that_was_better_and_makes_equal_groups_only(equal: GroupsMade) -> None:
    learning: list[Report] = [(MIXED, 0.6)] * REWARD_GROUPS
    assert found([*learning, *[(equal, 0.0)] * (MIN_ROW - 1)]) is None
    assert found([*learning, *[(equal, 0.0)] * MIN_ROW]) == (
        "the policy has collapsed: the rewards of each of the last 100 groups were equal, with a mean of 0, and the "
        "best mean over 10 groups or more was 0.6, after step 9"
    )


@pytest.mark.parametrize(
    ("before", "reward"),
    [
        pytest.param([(MIXED, 0.6)] * 50, 1.0, id="learned everything"),
        pytest.param([(MIXED, 0.6)] * 50, 0.31, id="not far below the best"),
        pytest.param([(MIXED, 0.0)] * 50, 0.0, id="never rewarded"),
        pytest.param([(MIXED, -0.2)] * 50, -1.0, id="rewards below zero have no half"),
        pytest.param([(EQUAL, 0.6)] * 50, 0.0, id="resumed where nothing was mixed"),
        pytest.param([(MIXED, 0.6)] * (REWARD_GROUPS - 1), 0.6, id="too few groups for a reward"),
    ],
)
def test_what_is_no_collapse_however_long(before: list[Report], reward: float) -> None:
    assert found([*before, *[(EQUAL, reward)] * 5_000]) is None


def test_groups_without_a_reward_are_no_evidence() -> None:
    """The environment withheld them, for whatever reason: one low group must not make a collapse of them."""
    withheld: list[Report] = [(WITHHELD, None)] * MIN_ROW
    low = (GroupsMade(equal=1, withheld=9), 0.0)
    assert found([*[(MIXED, 0.8)] * 30, *withheld, low]) is None
    watch = CollapseWatch()
    for made, reward in [*[(MIXED, 0.8)] * 30, low]:
        watch.report(made, reward, 3)
    assert watch.fallen is None
    assert found([*[(MIXED, 0.8)] * 30, *withheld, *[(EQUAL, 0.0)] * MIN_ROW]) is not None


def test_a_low_reward_with_a_mixed_group_now_and_then_is_a_warning_that_goes_away() -> None:
    """Something can still be learned from them: the run goes on."""
    watch = CollapseWatch()
    for made, reward in [(MIXED, 0.6)] * REWARD_GROUPS + [*[(EQUAL, 0.0)] * 19, (MIXED, 0.1)] * 10:
        assert watch.report(made, reward, 3) is None
    assert watch.fallen == "the mean reward has fallen below half of its best, which was 0.6 after step 3"
    for _ in range(REWARD_GROUPS):
        watch.report(MIXED, 0.6, 4)
    assert watch.fallen is None


def test_a_task_that_is_rarely_solved_needs_a_longer_row() -> None:
    rare: list[Report] = [*[(MIXED, 0.2)] * 10, *[(EQUAL, 0.2)] * 90, (MIXED, 0.2), *[(EQUAL, 0.2)] * 9, (MIXED, 0.2)]
    enough = math.ceil(EXPECTED_MIXED * len(rare) / 12)
    assert enough > MIN_ROW
    assert found([*rare, *[(EQUAL, 0.0)] * (enough - 1)]) is None
    assert found([*rare, *[(EQUAL, 0.0)] * enough]) is not None


@given(REPORTS)
def test_only_a_long_row_of_equal_groups_after_better_ones_is_collapse(reports: list[Report]) -> None:
    watch = CollapseWatch()
    for step, (made, reward) in enumerate(reports):
        if watch.report(made, reward, step):
            seen = [value for _, value in reports[: step + 1] if value is not None]
            assert row_of(reports[: step + 1]) >= MIN_ROW
            assert any(made.kept for made, _ in reports[:step])
            assert min(seen) < FALLEN_BELOW * max(seen)


@given(st.lists(st.tuples(MADE, st.floats(0.5, 1)), max_size=60))
def test_rewards_within_half_of_the_best_are_never_collapse(reports: list[Report]) -> None:
    assert found(reports) is None


@pytest.mark.parametrize("solved", [0.003, 0.01, 0.05, 0.3, 0.9])
def test_chance_is_not_collapse(solved: float) -> None:
    """3,000 groups of 8 rollouts, each right with the same probability all the time: nothing is learned or lost."""
    rewards = np.random.default_rng(0).binomial(8, solved, size=3_000) / 8
    assert found([(EQUAL if reward in (0, 1) else MIXED, reward) for reward in rewards.tolist()]) is None
