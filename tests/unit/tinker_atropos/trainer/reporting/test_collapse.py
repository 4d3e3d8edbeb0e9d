"""The rule: what must never be called collapse, and what always is."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.trainer.reporting.collapse import (
    DECLINED_EVALUATIONS,
    DECLINED_STEPS,
    EXPECTED_MIXED,
    FALLEN_BELOW,
    FAR_BELOW,
    MIN_ROW,
    REWARD_GROUPS,
    CollapseWatch,
    Decline,
    reward_decline,
)
from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade

FIGURES = st.lists(st.floats(-1, 1), max_size=40)


def after(values: Sequence[float], smoothing: float = 1.0) -> str | None:
    decline = Decline("held-out accuracy", DECLINED_EVALUATIONS, smoothing)
    for index, value in enumerate(values):
        decline.add(10 * index, value)
    return decline.sentence


def test_both_figures_and_their_steps_are_in_the_sentence() -> None:
    assert after([0.55, 0.8, 0.3, 0.4]) is None
    assert after([0.55, 0.8, 0.3, 0.4, 0.35]) == (
        "held-out accuracy is far below its best: 0.35 after step 40, 0.8 after step 10; the last weights are not the "
        "best ones, and a lower trainer.learning_rate may be needed"
    )


def test_it_stays_the_same_until_the_figure_recovers() -> None:
    assert after([0.8, 0.3, 0.4, 0.35, 0.2, 0.1]) == after([0.8, 0.3, 0.4, 0.35])
    assert after([0.8, 0.3, 0.4, 0.35, 0.7]) is None


def test_the_same_evaluation_counts_once() -> None:
    decline = Decline("held-out accuracy", DECLINED_EVALUATIONS)
    decline.add(0, 0.8)
    for _ in range(2 * DECLINED_EVALUATIONS):
        decline.add(10, 0.1)
    assert decline.sentence is None


@given(FIGURES)
def test_a_warning_means_that_the_last_figures_are_all_far_below_a_best_above_zero(values: list[float]) -> None:
    if after(values):
        assert max(values) > 0
        assert max(values[-DECLINED_EVALUATIONS:]) < FAR_BELOW * max(values)


@given(st.lists(st.floats(0.75, 1), max_size=40))
def test_noise_above_three_quarters_of_the_best_never_warns(values: list[float]) -> None:
    assert after(values, 0.2) is None


def test_a_reward_that_rises_and_falls_back_warns() -> None:
    decline = reward_decline()
    rewards = [0.55, 0.6, 0.7, 0.8, 0.9, 0.93, 0.93, 0.93] + [0.5] * (DECLINED_STEPS + 5)
    for step, reward in enumerate(rewards, 1):
        decline.add(step, reward)
    assert decline.sentence is not None
    assert decline.sentence.startswith("the rollout reward of recent steps is far below its best: 0.5")


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
    assert watch.fallen == "the rollout reward has fallen below half of its best, 0.6 after step 3"
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
