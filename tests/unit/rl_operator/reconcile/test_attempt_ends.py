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


async def train(life: Life, **spec: Any) -> None:
    """Up to a run whose first group was accepted."""
    life.apply(**spec)
    await life.settle()
    life.play("Running", ready(), ready(), ready())
    await life.settle()
    assert life.status.phase == "Running"


def pod(life: Life, attempt: int = 1) -> dict[str, Any]:
    return next(pod for pod in life.pods if pod["metadata"]["name"].endswith(f"-{attempt}"))


def held(life: Life, attempt: int = 1) -> bool:
    return POD_FINALIZER in pod(life, attempt)["metadata"]["finalizers"]


def play(life: Life, attempt: int, phase: str, trainer: Any) -> None:
    """What a kubelet reports of an attempt's pod, even of one that is no longer current."""
    status = {
        "phase": phase,
        "podIP": "10.0.0.1",
        "initContainerStatuses": [{"name": "api", **ready()}],
        "containerStatuses": [{"name": "trainer", **trainer}, {"name": "environment", **trainer}],
    }
    life.store.update("Pod", KEY[0], pod(life, attempt)["metadata"]["name"], lambda p: p.update(status=status))


def delete(life: Life) -> None:
    """Another client (kubectl, the taint manager) deletes the newest pod; its grace period ends in a minute."""
    life.store.delete("Pod", KEY[0], life.pods[-1]["metadata"]["name"])
    due = format_time(life.now + timedelta(seconds=60))
    name = life.pods[-1]["metadata"]["name"]
    life.store.update("Pod", KEY[0], name, lambda p: p["metadata"].update(deletionTimestamp=due))


def vanish(life: Life) -> None:
    """The newest pod is gone, its finalizers removed by another client."""
    name = life.pods[-1]["metadata"]["name"]
    life.store.update("Pod", KEY[0], name, lambda p: p["metadata"].update(finalizers=[]))
    life.store.delete("Pod", KEY[0], name)


async def lose_node(life: Life) -> None:
    delete(life)
    await life.settle()
    life.now += timedelta(seconds=60) + LOST_AFTER
    await life.settle()


async def test_a_lost_node_is_waited_for_and_then_the_next_attempt_starts(life: Life) -> None:
    await train(life)
    delete(life)
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Stopping", 1)
    life.now += timedelta(seconds=60) + LOST_AFTER - timedelta(seconds=1)
    await life.settle()
    assert (life.status.phase, life.status.attempts) == ("Stopping", ())
    life.now += timedelta(seconds=1)
    await life.settle()
    assert (life.status.phase, [a.reason for a in life.status.attempts]) == ("Pending", ["NodeLost"])
    assert not held(life)
    life.now += timedelta(seconds=11)
    await life.settle()
    assert (life.status.phase, life.status.attempt, len(life.pods)) == ("Starting", 2, 2)
    assert life.status.failed_attempts is None


async def test_a_node_that_comes_back_with_its_pod_changes_nothing(life: Life) -> None:
    """Its kubelet reports the old pod as running, its trainer as done: that attempt is already over."""
    await train(life)
    await lose_node(life)
    life.now += timedelta(seconds=11)
    await life.settle()
    play(life, 2, "Running", ready())
    await life.settle()
    before, writes = life.status, life.client.writes
    life.attempt_metrics[pod(life, 1)["metadata"]["name"]] = ObservedTrainer(step=39, total_steps=40)
    for phase, trainer in (("Running", ready()), ("Running", running()), ("Succeeded", terminated(0, result()))):
        play(life, 1, phase, trainer)
        life.now += timedelta(seconds=61)
        await life.settle()
    assert (life.status, life.client.writes) == (before, writes)
    assert not held(life)
    life.store.update(
        "Pod", KEY[0], pod(life, 1)["metadata"]["name"], lambda p: p["metadata"]["finalizers"].remove(KUBELET_FINALIZER)
    )
    await life.settle()
    assert (len(life.pods), life.status) == (1, before)


async def test_a_node_lost_while_the_run_stops_stops_it(life: Life) -> None:
    await train(life)
    life.edit(suspend=True)
    await life.settle()
    due = format_time(life.now)
    life.store.update(
        "Pod", KEY[0], pod(life)["metadata"]["name"], lambda p: p["metadata"].update(deletionTimestamp=due)
    )
    life.now += LOST_AFTER
    await life.settle()
    assert (life.status.phase, [a.reason for a in life.status.attempts]) == ("Stopped", ["Stopped"])
    assert not held(life)


async def test_a_pod_that_vanished_while_running_is_a_lost_attempt(life: Life) -> None:
    await train(life)
    vanish(life)
    await life.settle()
    assert (life.status.phase, [a.reason for a in life.status.attempts]) == ("Pending", ["PodLost"])
    life.now += timedelta(seconds=11)
    await life.settle()
    assert (life.status.attempt, [p["metadata"]["name"][-2:] for p in life.pods]) == (2, ["-2"])


async def test_a_pod_that_vanished_while_starting_is_created_again(life: Life) -> None:
    life.apply()
    await life.settle()
    vanish(life)
    await life.settle()
    assert (life.status.phase, life.status.attempt, life.status.attempts) == ("Starting", 1, ())
    assert [p["metadata"]["name"][-2:] for p in life.pods] == ["-1"]


async def test_pods_held_since_a_crash_are_released_before_the_end(life: Life) -> None:
    """The operator died between the record of an attempt's end and its pod's release; the next attempt runs."""
    life.apply()
    await life.settle()
    life.play_failure()
    await life.settle()
    name = pod(life)["metadata"]["name"]
    life.store.update("Pod", KEY[0], name, lambda p: p["metadata"]["finalizers"].append(POD_FINALIZER))
    life.now += timedelta(seconds=11)
    await life.settle()
    assert (life.status.attempt, held(life, 1), held(life, 2)) == (2, False, True)


async def test_an_eviction_after_hours_of_training_is_followed_by_another_attempt(life: Life) -> None:
    await train(life, progressDeadlineSeconds=600)
    name = life.status.pod_name or ""
    life.now += timedelta(hours=5)
    life.attempt_metrics[name] = ObservedTrainer(step=7, total_steps=40, last_step_at=format_time(life.now))
    await life.settle()
    assert life.status.phase == "Running"
    delete(life)
    saved = result(outcome="stopped", stepsTrained=8, samplerPath=None)
    play(life, 1, "Failed", terminated(0, saved, at=format_time(life.now)))
    await life.settle()
    assert (life.status.phase, [(a.reason, a.steps) for a in life.status.attempts]) == ("Pending", [("PodDeleted", 8)])


async def test_a_restarted_operator_waits_for_the_trainers_answer(life: Life) -> None:
    await train(life, progressDeadlineSeconds=600)
    life.now += timedelta(hours=5)
    await life.settle()
    assert (life.status.phase, "deletionTimestamp" in pod(life)["metadata"]) == ("Running", False)


async def test_a_deadline_is_recorded_before_the_pod_is_deleted(life: Life) -> None:
    life.apply(startDeadlineSeconds=300)
    await life.settle()
    life.play("Pending", waiting("ImagePullBackOff", "no such image"), waiting(), waiting())
    await life.settle()
    life.now += timedelta(seconds=301)
    await life.reconcile()
    assert (life.status.phase, "deletionTimestamp" in pod(life)["metadata"]) == ("Stopping", False)
    life.edit(startDeadlineSeconds=100_000)
    life.now -= timedelta(hours=1)
    await life.settle()
    assert "deletionTimestamp" in pod(life)["metadata"]
    play(life, 1, "Failed", terminated(137))
    await life.settle()
    assert life.status.phase == "Failed"
    assert life.status.failure is not None
    assert life.status.failure.reason == "StartDeadlineExceeded"
    assert "no such image" in life.status.failure.message
    assert not held(life)


@BEFORE_OR_AFTER
@pytest.mark.parametrize("nth", range(1, 10))
async def test_killed_at_any_write_a_deadline_ends_the_run_the_same_way(life: Life, nth: int, before: bool) -> None:
    life.client.dies_at, life.client.dies_before = nth, before
    life.apply(startDeadlineSeconds=300)
    await life.settle()
    life.play("Pending", waiting(), waiting(), waiting())
    life.now += timedelta(seconds=301)
    await life.settle()
    play(life, 1, "Failed", terminated(0, result(outcome="stopped", stepsTrained=0)))
    await life.settle()
    reasons = [attempt.reason for attempt in life.status.attempts]
    assert (life.status.phase, reasons, len(life.pods)) == ("Failed", ["StartDeadlineExceeded"], 1)
    assert not held(life)
    assert life.client.dies_at is None or life.client.writes < nth, "the kill did not happen"


async def test_backing_off_past_the_active_deadline_ends_the_run(life: Life) -> None:
    life.apply(activeDeadlineSeconds=600)
    await life.settle()
    life.now += timedelta(seconds=595)
    life.play_failure()
    await life.settle()
    assert life.status.phase == "Pending"
    life.now += timedelta(seconds=6)
    await life.settle()
    assert (life.status.phase, len(life.pods), len(life.status.attempts)) == ("Failed", 1, 1)
    assert life.status.failure is not None
    assert life.status.failure.reason == "ActiveDeadlineExceeded"


async def test_stopped_past_the_active_deadline_it_stays_stopped(life: Life) -> None:
    await train(life, activeDeadlineSeconds=600, startDeadlineSeconds=None)
    life.edit(suspend=True)
    await life.settle()
    play(life, 1, "Failed", terminated(0, result(outcome="stopped", stepsTrained=8)))
    await life.settle()
    life.now += timedelta(hours=1)
    await life.settle()
    assert life.status.phase == "Stopped"
    life.edit(activeDeadlineSeconds=100_000, suspend=False)
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Starting", 2)


async def test_a_clock_set_back_an_hour_delays_nothing(life: Life) -> None:
    life.apply()
    await life.settle()
    life.play_failure()
    await life.settle()
    life.now -= timedelta(hours=1)
    await life.settle()
    assert (life.status.attempt, len(life.pods)) == (2, 2)
    play(life, 2, "Running", ready())
    await life.settle()
    play(life, 2, "Succeeded", terminated(0, result()))
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Succeeded", 2)


async def test_a_suspend_revoked_while_the_pod_saves_continues_at_once(life: Life) -> None:
    await train(life)
    life.edit(suspend=True)
    await life.settle()
    life.edit(suspend=False)
    await life.settle()
    assert life.status.phase == "Stopping"
    play(life, 1, "Failed", terminated(0, result(outcome="stopped", stepsTrained=8)))
    await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Starting", 2)
    assert [a.reason for a in life.status.attempts] == ["Stopped"]


async def test_pauses_grow_only_while_nothing_new_is_trained(life: Life) -> None:
    life.apply(backoffLimit=10)
    await life.settle()
    for attempt, pause in ((1, 10), (2, 20), (3, 40)):
        life.play_failure()
        await life.settle()
        assert life.status.attempt == attempt
        steps_so_far = life.status.attempts[-1].steps
        expected = 10 if attempt == 1 else pause // 2  # the first attempt trained something
        life.now += timedelta(seconds=expected - 1)
        await life.settle()
        assert (life.status.attempt, steps_so_far) == (attempt, 7)
        life.now += timedelta(seconds=2)
        await life.settle()
        assert life.status.attempt == attempt + 1


async def test_five_attempts_without_a_new_step_end_the_run(life: Life) -> None:
    """No fault of the run, and no gain: the first attempt trained seven steps, five more trained none."""
    life.apply(startDeadlineSeconds=None)
    await life.settle()
    for _ in range(6):
        assert life.status.phase == "Starting"
        play(life, life.status.attempt or 0, "Failed", terminated(4, result(outcome="running", stepsTrained=7)))
        await life.settle()
        life.now += timedelta(seconds=400)
        await life.settle()
    assert (life.status.phase, life.status.attempt) == ("Failed", 6)
    assert life.status.message is not None
    assert "5 attempts in a row" in life.status.message


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
    life.apply()
    await life.settle()
    started = life.client.writes + 1  # the mark comes with the first of them
    for number, (states, message) in enumerate(STARTS, 1):
        life.play("Running", *states)
        life.now += timedelta(seconds=1)
        await life.settle()
        assert (life.status.message, life.client.writes) == (message, started + number)
    for states in ((ready(), running(), ready()), (ready(), ready(), ready())):
        life.play("Running", *states)
        life.now += timedelta(seconds=1)
        await life.settle()
    assert life.client.writes == started + len(STARTS)


async def test_a_problem_is_written_at_once(life: Life) -> None:
    life.apply()
    await life.settle()
    life.play("Pending", waiting("ImagePullBackOff", "no such image"), waiting(), waiting())
    await life.settle()
    assert "no such image" in (life.status.message or "")
