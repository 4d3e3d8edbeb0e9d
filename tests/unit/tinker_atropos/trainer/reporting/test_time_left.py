import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.run_configs import run_config

from tinker_atropos.trainer.reporting.time_left import Schedule, TimeLeft


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def trained(
    left: TimeLeft, steps: range, pace: float = 1.0, *, save_every: int = 0, saving: float = 0.0, extra: float = 0.0
) -> TimeLeft:
    """Steps of `pace` seconds; a checkpoint's `saving` counts in the step after it, as the stopwatch has it."""
    for step in steps:
        after_save = saving if save_every and (step - 1) % save_every == 0 and step > 1 else 0.0
        left.step_trained(step, pace + after_save + extra, {"time/saving": after_save})
    return left


@given(
    total=st.integers(1, 60),
    save_every=st.integers(1, 70),
    evaluate_every=st.integers(0, 70),
    step=st.integers(0, 60),
)
def test_what_is_still_to_be_done_is_what_the_trainer_does(
    total: int, save_every: int, evaluate_every: int, step: int
) -> None:
    env = {"total_steps": total, "steps_per_eval": evaluate_every}
    config = run_config(env, save_checkpoint_interval=save_every)
    schedule = Schedule.of(config)
    later = range(step + 1, total + 1)
    saves = [s for s in later if s % save_every == 0 or s == total or config.env.evaluates_at(s)]
    evaluations = [s for s in later if config.env.evaluates_at(s) and s != total]
    assert schedule.saves_after(step) == len(saves)
    assert schedule.evaluations_after(step) == len(evaluations)


def test_nothing_is_known_before_the_second_step() -> None:
    """The first one waits for the environment, and for the evaluation before it."""
    left = TimeLeft(Schedule(10))
    assert left.seconds() is None
    left.step_trained(1, 500.0, {})
    assert left.seconds() is None
    left.step_trained(2, 3.0, {})
    assert left.seconds() == 24.0


def test_the_final_evaluation_counts_once_one_was_made() -> None:
    left = TimeLeft(Schedule(40, evaluate_every=100))
    trained(left, range(1, 11))
    assert left.seconds() == 30.0
    left.evaluated(0, 12.5)
    assert left.seconds() == 42.5


def test_no_evaluation_counts_where_there_is_none() -> None:
    left = TimeLeft(Schedule(40))
    left.evaluated(0, 12.5)
    assert trained(left, range(1, 11)).seconds() == 30.0


def test_evaluations_in_between_and_checkpoints_count_one_by_one() -> None:
    """Of 40 steps 24 are left; evaluations at 30 and 40, checkpoints at 20, 30 and 40."""
    left = TimeLeft(Schedule(40, save_every=10, evaluate_every=15))
    left.evaluated(0, 8.0)
    trained(left, range(1, 16), save_every=10, saving=2.0)
    left.evaluated(15, 6.0)
    left.step_trained(16, 1.0 + 6.0, {"time/saving": 0.0})
    assert left.seconds() == pytest.approx(24 * 1.0 + 2 * 6.0 + 3 * 2.0)


def test_an_evaluation_that_is_due_counts_until_it_is_over() -> None:
    left = TimeLeft(Schedule(40, evaluate_every=10))
    left.evaluated(0, 5.0)
    trained(left, range(1, 11))
    assert left.seconds() == 30.0 + 5.0 * 4
    left.evaluated(10, 5.0)
    assert left.seconds() == 30.0 + 5.0 * 3
    silent = TimeLeft(Schedule(40, evaluate_every=10), evaluation_seconds=5.0)
    assert trained(silent, range(1, 15)).seconds() == 26.0 + 5.0 * 3


def test_training_does_not_wait_for_evaluations_beside_it() -> None:
    left = TimeLeft(Schedule(40, evaluate_every=10, waits=False))
    left.evaluated(0, 5.0)
    assert trained(left, range(1, 11)).seconds() == 30.0 + 5.0


@pytest.mark.parametrize(("told", "counted"), [(900.0, 600.0), (-1.0, 0.0), (30.0, 30.0)])
def test_an_evaluation_counts_no_longer_than_it_is_waited_for(told: float, counted: float) -> None:
    left = TimeLeft(Schedule(40, evaluate_every=100, longest_evaluation=600.0))
    left.evaluated(0, told)
    assert trained(left, range(1, 11)).seconds() == 30.0 + counted


def test_the_pace_is_that_of_the_newest_steps() -> None:
    left = TimeLeft(Schedule(100))
    trained(left, range(1, 31), pace=5.0)
    trained(left, range(31, 51), pace=1.0)
    assert left.seconds() == 50.0


def test_after_the_last_step_it_decreases_in_few_steps() -> None:
    clock = Clock()
    left = TimeLeft(Schedule(10, evaluate_every=100), clock)
    left.evaluated(0, 60.0)
    trained(left, range(1, 11))
    seen = []
    for _ in range(70):
        seen.append(left.seconds())
        clock.now += 1.0
    assert seen[0] == 60.0
    assert seen[-1] == 0.0
    assert seen == sorted(seen, reverse=True)  # type: ignore[type-var]  # none is None
    assert len(set(seen)) == 11


def test_the_step_that_waited_for_an_evaluation_is_no_measure_of_others() -> None:
    """Groups at hand were trained first: it is not the step after the one that was evaluated."""
    left = TimeLeft(Schedule(60, evaluate_every=20))
    left.evaluated(0, 5.0)
    trained(left, range(1, 23))
    trained(left, range(23, 24), extra=4.0)
    left.evaluated(20, 5.0)
    trained(left, range(24, 32))
    assert left.seconds() == pytest.approx(29 * 1.0 + 2 * 5.0)


def test_steps_that_become_longer_are_expected_to_become_longer_still() -> None:
    """A task that is nearly solved: step n takes n seconds, and 25 of 50 are trained."""
    left = TimeLeft(Schedule(50))
    for step in range(1, 26):
        left.step_trained(step, float(step), {})
    assert left.seconds() == pytest.approx(sum(range(26, 51)), rel=0.15)


def test_steps_of_different_length_do_not_become_longer_by_chance() -> None:
    left = TimeLeft(Schedule(50))
    for step in range(1, 26):
        left.step_trained(step, 3.0 if step % 2 else 1.0, {})
    assert left.seconds() == 50.0


def test_steps_are_expected_to_become_longer_only_for_as_many_as_there_were() -> None:
    """Else one minute of a run would predict days."""
    left = TimeLeft(Schedule(100_000))
    for step in range(1, 26):
        left.step_trained(step, float(step), {})
    seconds = left.seconds()
    assert seconds is not None
    assert seconds < 100_000 * 50
