from tinker_atropos.trainer.reporting.trackers.wandb_program import StepAxis


def test_a_retrained_step_is_not_logged_again() -> None:
    axis = StepAxis(before=0)
    points = [axis.trained(step, {"train/loss": float(step)}) for step in (1, 2, 3, 2, 3, 4)]
    assert [point and point["train/step"] for point in points] == [1, 2, 3, None, None, 4]
    assert axis.replayed == 2


def test_an_attempt_continues_where_the_previous_one_ended() -> None:
    axis = StepAxis(before=14)
    assert [axis.trained(step, {}) for step in (11, 14)] == [None, None]
    assert axis.reported(11, {"env/reward_mean": 1.0}) is None
    assert axis.trained(15, {}) == {"train/step": 15}
    assert axis.replayed == 3


def test_a_report_is_logged_at_the_newest_step_and_keeps_its_own() -> None:
    axis = StepAxis(before=0)
    assert axis.reported(0, {"x": 1.0}) == {"train/step": 0, "x": 1.0}
    axis.trained(5, {})
    assert axis.reported(5, {"x": 1.0}) == {"train/step": 5, "x": 1.0}
    assert axis.reported(None, {"x": 1.0}) == {"train/step": 5, "x": 1.0}
    assert axis.reported(3, {"x": 1.0}) == {"train/step": 5, "env/step": 3.0, "x": 1.0}
    assert axis.reported(0, {"x": 1.0}) == {"train/step": 5, "env/step": 0.0, "x": 1.0}
    assert axis.reported(6, {"x": 1.0}) == {"train/step": 5, "env/step": 6.0, "x": 1.0}
