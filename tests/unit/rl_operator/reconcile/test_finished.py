"""What is deleted after its time: finished runs, and the pods of old attempts."""

from datetime import timedelta

import pytest
from tests.unit.rl_operator.reconcile.life import KEY, PACE, Life
from tests.unit.rl_operator.status.builders import ready, result, terminated

from rl_operator.api.names import RUN_KIND
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ConflictError
from rl_operator.reconcile import reconcile


async def test_a_finished_run_is_reconciled_again_when_its_time_is_up(life: Life) -> None:
    await life.train(ttlSecondsAfterFinished=100)
    await life.succeed()
    writes, due = life.client.writes, await life.reconcile()
    assert due is not None
    assert 98 <= due <= 100
    assert life.client.writes == writes
    life.now += timedelta(seconds=101)
    assert await life.reconcile() is None
    assert life.store.get(RUN_KIND, *KEY) is None
    assert all(gone(pod) for pod in life.pods), "what it owned goes with it"
    assert life.client.told[-1] == "Expired"


async def test_a_run_without_a_time_to_live_is_kept(life: Life) -> None:
    await life.train()
    await life.succeed()
    life.now += timedelta(days=900)
    assert await life.reconcile() is None
    assert life.status.finished


async def test_an_edit_after_the_end_is_observed_once(life: Life) -> None:
    await life.train()
    await life.succeed()
    await life.change(ttlSecondsAfterFinished=100)
    assert life.status.observed_generation == 2


async def test_the_time_may_be_changed_after_the_end(life: Life) -> None:
    await life.train(ttlSecondsAfterFinished=100)
    await life.succeed()
    life.now += timedelta(seconds=101)
    life.edit(ttlSecondsAfterFinished=200)
    due = await life.reconcile()
    assert due is not None
    assert 97 <= due <= 99
    life.edit(ttlSecondsAfterFinished=None)
    assert await life.reconcile() is None
    assert life.status.finished


async def test_only_the_version_that_was_checked_is_deleted(life: Life) -> None:
    seen = await succeed_without_expiry(life)
    life.edit(ttlSecondsAfterFinished=1000)
    with pytest.raises(ConflictError):
        await life.client.delete_run(seen)
    assert life.status.finished


async def succeed_without_expiry(life: Life) -> TrainingRun:
    """Up to the last status, which a reconcile then acts on."""
    await life.train(ttlSecondsAfterFinished=0)
    life.play("Succeeded", terminated(0), terminated(0, result()), terminated(0))
    await reconcile(KEY, life.client, lambda: life.now, PACE)
    return life.run


async def test_a_new_run_of_the_same_name_stays(life: Life) -> None:
    seen = await succeed_without_expiry(life)
    life.store.delete(RUN_KIND, *KEY)
    life.apply()
    await life.client.delete_run(seen)
    assert life.store.get(RUN_KIND, *KEY) is not None


async def test_killed_before_the_deletion_the_next_operator_deletes_it(life: Life) -> None:
    await succeed_without_expiry(life)
    life.client.dies_at = life.client.writes + 1
    await life.reconcile()
    assert life.store.get(RUN_KIND, *KEY) is None


async def test_the_pods_of_the_five_newest_ended_attempts_are_kept(life: Life) -> None:
    life.apply(backoffLimit=100, startDeadlineSeconds=None)
    for attempt in range(1, 9):
        await life.settle()
        failed = result(outcome="failed", stepsTrained=attempt, samplerPath=None, error={"class": "internal"})
        await life.report("Failed", ready(), terminated(1, failed), terminated(0))
        life.now += timedelta(seconds=400)
    attempts = [int(pod["metadata"]["name"].rsplit("-", 1)[1]) for pod in life.pods if not gone(pod)]
    assert attempts == [4, 5, 6, 7, 8, 9], "and that of the attempt that has begun"


def gone(pod: dict[str, object]) -> bool:
    """Being deleted: only the local kubelet, which is not played here, still holds it."""
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return "deletionTimestamp" in metadata
