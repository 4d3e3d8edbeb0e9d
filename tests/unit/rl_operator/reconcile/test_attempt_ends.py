"""How attempts end and what follows, through reconcile: losses, deadlines, stops, and how many writes they take."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import BEFORE_OR_AFTER, KEY, Life
from tests.unit.rl_operator.status.builders import ready, result, running, terminated, waiting

from rl_operator.api.names import POD_FINALIZER
from rl_operator.local.pods.kubelet import KUBELET_FINALIZER
from rl_operator.status.attempt.pod_cleanup import LOST_AFTER
from rl_operator.status.observed.observation import ObservedTrainer, format_time


def pod(life: Life, attempt: int = 1) -> dict[str, Any]:
    return next(pod for pod in life.pods if pod["metadata"]["name"].endswith(f"-{attempt}"))


def held(life: Life, attempt: int = 1) -> bool:
    return POD_FINALIZER in pod(life, attempt)["metadata"]["finalizers"]


async def play(life: Life, attempt: int, phase: str, trainer: Any) -> None:
    """What a kubelet reports of an attempt's pod, even of one that is no longer current."""
    life.play(phase, ready(), trainer, trainer, pod=pod(life, attempt))
    await life.settle()


def delete(life: Life) -> None:
    """Another client (kubectl, the taint manager) deletes the newest pod; its grace period ends in a minute."""
    life.store.delete("Pod", KEY[0], life.pods[-1]["metadata"]["name"])
    due = format_time(life.now + timedelta(seconds=60))
    life.change_pod(life.pods[-1], lambda metadata: metadata.update(deletionTimestamp=due))


def vanish(life: Life) -> None:
    """The newest pod is gone, its finalizers removed by another client."""
    newest = life.pods[-1]
    life.change_pod(newest, lambda metadata: metadata.update(finalizers=[]))
    life.store.delete("Pod", KEY[0], newest["metadata"]["name"])


async def lose_node(life: Life) -> None:
    delete(life)
    await life.settle()
    await life.later(60 + LOST_AFTER.seconds)


async def test_a_lost_node_is_waited_for_and_then_the_next_attempt_starts(life: Life) -> None:
    await life.train()
    delete(life)
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Stopping", 1)
    await life.later(60 + LOST_AFTER.seconds - 1)
    assert (life.status.phase, life.status.attempts) == ("Stopping", ())
    await life.later(1)
    assert (life.status.phase, life.ends) == ("Pending", ["NodeLost"])
    assert not held(life)
    await life.later(11)
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Starting", 2, 2)
    assert life.status.failed_attempts is None


async def test_a_node_that_comes_back_with_its_pod_changes_nothing(life: Life) -> None:
    """Its kubelet reports the old pod as running, its trainer as done: that attempt is already over."""
    await life.train()
    await lose_node(life)
    await life.later(11)
    await play(life, 2, "Running", ready())
    before, writes = life.status, life.client.writes
    life.attempt_metrics[pod(life, 1)["metadata"]["name"]] = ObservedTrainer(step=39, total_steps=40)
    for phase, trainer in (("Running", ready()), ("Running", running()), ("Succeeded", terminated(0, result()))):
        await play(life, 1, phase, trainer)
        await life.later(61)
    assert (life.status, life.client.writes) == (before, writes)
    assert not held(life)
    life.change_pod(pod(life, 1), lambda metadata: metadata["finalizers"].remove(KUBELET_FINALIZER))
    await life.settle()
    assert (len(life.pods), life.status) == (1, before)


async def test_a_node_lost_while_the_run_stops_stops_it(life: Life) -> None:
    await life.train()
    await life.change(suspend=True)
    due = format_time(life.now)
    life.change_pod(pod(life), lambda metadata: metadata.update(deletionTimestamp=due))
    await life.later(LOST_AFTER.seconds)
    assert (life.status.phase, life.ends) == ("Stopped", ["Stopped"])
    assert not held(life)


async def test_a_pod_that_vanished_while_running_is_a_lost_attempt(life: Life) -> None:
    await life.train()
    vanish(life)
    await life.settle()
    assert (life.status.phase, life.ends) == ("Pending", ["PodLost"])
    await life.later(11)
    assert (life.status.attempt, [p["metadata"]["name"][-2:] for p in life.pods]) == (2, ["-2"])


async def test_a_pod_that_vanished_while_starting_is_created_again(life: Life) -> None:
    await life.start()
    vanish(life)
    await life.settle()
    assert (life.status.phase, life.status.attempt, life.status.attempts) == ("Starting", 1, ())
    assert [p["metadata"]["name"][-2:] for p in life.pods] == ["-1"]


async def test_pods_held_since_a_crash_are_released_before_the_end(life: Life) -> None:
    """The operator died between the record of an attempt's end and its pod's release; the next attempt runs."""
    await life.start()
    await life.fail()
    life.change_pod(pod(life), lambda metadata: metadata["finalizers"].append(POD_FINALIZER))
    await life.later(11)
    assert (life.status.attempt, held(life, 1), held(life, 2)) == (2, False, True)


async def test_a_deadline_is_recorded_before_the_pod_is_deleted(life: Life) -> None:
    await life.start(startDeadlineSeconds=300)
    await life.report("Pending", waiting("ImagePullBackOff", "no such image"), waiting(), waiting())
    life.now += timedelta(seconds=301)
    await life.reconcile()
    assert (life.status.phase, "deletionTimestamp" in pod(life)["metadata"]) == ("Stopping", False)
    life.edit(startDeadlineSeconds=100_000)
    await life.later(-1 * 3600)
    assert "deletionTimestamp" in pod(life)["metadata"]
    await play(life, 1, "Failed", terminated(137))
    assert life.status.phase == "Failed"
    assert life.status.failure.reason == "StartDeadlineExceeded"
    assert "no such image" in life.status.failure.message
    assert not held(life)


@BEFORE_OR_AFTER
@pytest.mark.parametrize("nth", range(1, 10))
async def test_killed_at_any_write_a_deadline_ends_the_run_the_same_way(life: Life, nth: int, before: bool) -> None:
    life.client.dies_at, life.client.dies_before = nth, before
    await life.start(startDeadlineSeconds=300)
    life.play("Pending", waiting(), waiting(), waiting())
    await life.later(301)
    await play(life, 1, "Failed", terminated(0, result(outcome="stopped", stepsTrained=0)))
    reasons = life.ends
    assert (life.status.phase, reasons, len(life.pods)) == ("Failed", ["StartDeadlineExceeded"], 1)
    assert not held(life)
    assert life.client.dies_at is None or life.client.writes < nth, "the kill did not happen"


# --- writes ---------------------------------------------------------------------------------------------------------
STARTS = (
    ((waiting(), waiting(), waiting()), "Waiting for api, trainer, environment."),
    ((running(), waiting(), waiting()), "Waiting for api, trainer, environment."),
    ((ready(), running(), running()), "Waiting for trainer, environment."),
    ((ready(), ready(), running()), "Waiting for environment."),
    ((ready(), ready(), ready()), "Training."),
)


async def test_a_start_is_one_write_for_each_first_state_of_a_container(life: Life) -> None:
    """So that its message is never about what is over; a state that comes back is written with the next progress."""
    await life.start()
    started = life.client.writes + 1  # the mark comes with the first of them
    for number, (states, message) in enumerate(STARTS, 1):
        life.play("Running", *states)
        await life.later(1)
        assert (life.status.message, life.client.writes) == (message, started + number)
    for states in ((ready(), running(), ready()), (ready(), ready(), ready())):
        life.play("Running", *states)
        await life.later(1)
    assert life.client.writes == started + len(STARTS)


async def test_a_problem_is_written_at_once(life: Life) -> None:
    await life.start()
    await life.report("Pending", waiting("ImagePullBackOff", "no such image"), waiting(), waiting())
    assert "no such image" in (life.status.message or "")
