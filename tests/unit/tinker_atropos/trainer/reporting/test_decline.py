from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.trainer.reporting.decline import EVALUATIONS, FAR_BELOW, STEPS, Decline, reward_decline

FIGURES = st.lists(st.floats(-1, 1), max_size=40)


def after(values: Sequence[float], smoothing: float = 1.0) -> str | None:
    decline = Decline("held-out accuracy", EVALUATIONS, smoothing)
    for index, value in enumerate(values):
        decline.add(10 * index, value)
    return decline.sentence


def test_both_figures_and_their_steps_are_in_the_sentence() -> None:
    assert after([0.55, 0.8, 0.3, 0.4]) is None
    assert after([0.55, 0.8, 0.3, 0.4, 0.35]) == (
        "held-out accuracy is far below its best: 0.35 after step 40, 0.8 after step 10; the last weights are not the "
        "best ones, and a lower tinker.learning_rate may be needed"
    )


def test_it_stays_the_same_until_the_figure_recovers() -> None:
    assert after([0.8, 0.3, 0.4, 0.35, 0.2, 0.1]) == after([0.8, 0.3, 0.4, 0.35])
    assert after([0.8, 0.3, 0.4, 0.35, 0.7]) is None


def test_the_same_evaluation_counts_once() -> None:
    decline = Decline("held-out accuracy", EVALUATIONS)
    decline.add(0, 0.8)
    for _ in range(2 * EVALUATIONS):
        decline.add(10, 0.1)
    assert decline.sentence is None


@given(FIGURES)
def test_a_warning_means_that_the_last_figures_are_all_far_below_a_best_above_zero(values: list[float]) -> None:
    if after(values):
        assert max(values) > 0
        assert max(values[-EVALUATIONS:]) < FAR_BELOW * max(values)


@given(st.lists(st.floats(0.75, 1), max_size=40))
def test_noise_above_three_quarters_of_the_best_never_warns(values: list[float]) -> None:
    assert after(values, 0.2) is None


def test_a_reward_that_rises_and_falls_back_warns() -> None:
    decline = reward_decline()
    rewards = [0.55, 0.6, 0.7, 0.8, 0.9, 0.93, 0.93, 0.93] + [0.5] * (STEPS + 5)
    for step, reward in enumerate(rewards, 1):
        decline.add(step, reward)
    assert decline.sentence is not None
    assert decline.sentence.startswith("the mean reward of recent steps is far below its best: 0.5")
