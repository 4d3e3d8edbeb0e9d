"""A stop uses the whole grace period: the step in progress gets what saving and the last reports leave of it."""

import itertools

import pytest

from tinker_atropos.trainer.stop_schedule import StopSchedule


@pytest.mark.parametrize("grace", [1, 5, 25])
@pytest.mark.parametrize("save_seconds", [None, 0.5])
def test_a_short_grace_is_spent_as_if_it_were_25_seconds(grace, save_seconds) -> None:
    schedule = StopSchedule(grace)
    assert (schedule.step_by(save_seconds), schedule.saved_by, schedule.kept_by) == (10.0, 15.0, 17.0)


@pytest.mark.parametrize(
    ("grace", "save_seconds", "step_by", "saved_by"),
    [
        (60, None, 33.0, 44.0),
        (60, 1.0, 37.0, 44.0),
        (300, None, 213.0, 284.0),
        (300, 2.0, 277.0, 284.0),
        (300, 60.0, 191.0, 284.0),
        (300, 400.0, 10.0, 284.0),  # saving takes longer than there is: the step has no more than it always had
        (86_400, 30.0, 86_336.0, 86_384.0),
    ],
)
def test_the_step_in_progress_gets_what_saving_took_last_time_leaves(grace, save_seconds, step_by, saved_by) -> None:
    schedule = StopSchedule(grace)
    assert schedule.step_by(save_seconds) == step_by
    assert schedule.saved_by == saved_by


def test_each_part_follows_the_one_before() -> None:
    for grace, save_seconds in itertools.product(range(26, 600, 7), (None, 0.0, 10.0, 1000.0)):
        schedule, before = StopSchedule(grace), StopSchedule(grace - 1)
        assert 10 <= schedule.step_by(save_seconds) < schedule.saved_by < schedule.kept_by <= grace
        assert before.saved_by <= schedule.saved_by <= before.saved_by + 1
        assert before.step_by(save_seconds) <= schedule.step_by(save_seconds)


def test_what_wandb_may_take_at_the_end_is_not_for_the_step() -> None:
    assert StopSchedule(300, wandb=60).saved_by == StopSchedule(300).saved_by - 56
