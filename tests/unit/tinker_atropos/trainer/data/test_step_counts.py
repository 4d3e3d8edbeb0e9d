import pytest

from tinker_atropos.errors import BackendError, BackendLostError
from tinker_atropos.trainer.data.step_counts import MAX_REBUILDS, StepCounts

LOST = BackendLostError("forward_backward: there is no such model")


def test_a_rebuild_returns_to_the_checkpoint_and_replays_without_counting_again() -> None:
    progress = StepCounts(total=40)
    progress.opened(0)
    assert [progress.trained(step) for step in (1, 2, 3)] == [True, True, True]
    progress.saved = 2
    assert progress.metrics() == {}

    progress.lost(LOST)
    progress.opened(2)
    assert (progress.weights, progress.counted, progress.reported, progress.saved) == (2, 3, 2, 2)
    assert [progress.trained(step) for step in (3, 4)] == [False, True]
    assert progress.metrics() == {"backend/rebuilds": 1, "backend/steps_replayed": 1}


def test_a_resumed_attempt_replays_nothing() -> None:
    progress = StepCounts(total=40)
    progress.opened(25)
    assert progress.trained(26)
    assert progress.replayed == 0


def test_fruitless_rebuilds_end_with_the_recurring_error() -> None:
    progress = StepCounts(total=40)
    progress.opened(0)
    progress.trained(1)
    for _ in range(MAX_REBUILDS):
        progress.lost(LOST)
        progress.opened(0)
        progress.trained(1)  # only a replay
    with pytest.raises(
        BackendError, match=r"opened again 5 times .* before step 2: forward_backward: there is no such"
    ):
        progress.lost(LOST)


def test_a_new_step_makes_rebuilds_worthwhile_again() -> None:
    progress = StepCounts(total=400)
    progress.opened(0)
    for step in range(1, 3 * MAX_REBUILDS):
        progress.lost(LOST)
        progress.opened(step - 1)
        assert progress.trained(step)
    assert progress.rebuilds == 3 * MAX_REBUILDS - 1
