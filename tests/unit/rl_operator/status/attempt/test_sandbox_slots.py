"""Which sandbox pods there should be: one row per state."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import (
    NOW,
    RUNNING,
    STARTED,
    TRAINING,
    make_pod,
    make_sandbox,
    make_view,
    ready,
    status_of,
    terminated,
    waiting,
    working_pod,
)

from rl_contract.status_metrics import RunMetrics
from rl_operator.api.status_fields import SandboxPods
from rl_operator.status.attempt.environment_slots import Slot
from rl_operator.status.attempt.sandbox_slots import FAILED_SECONDS, observed_sandboxes, plan_sandboxes
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import derive, worth_writing
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation, format_time
from rl_operator.status.phase_and_action import assess, requeue_after

WORKING = working_pod(podIP="10.0.0.1")
AT_STEP_3 = ObservedTrainer(step=3, total_steps=40)
OVER = make_pod(terminated(0), terminated(0), terminated(0), phase="Succeeded")


def with_sandboxes(*pods: PodObservation, size: int = 1, status: Any = None, **rest: Any) -> View:
    spec = {"sandbox": {"size": size}}
    return make_view(status or RUNNING, **{"pod": WORKING, "sandboxes": pods, "spec": spec, **rest})


def works(slot: int = 0, incarnation: int = 0, attempt: int = 1) -> PodObservation:
    return make_sandbox(slot, incarnation, ready(), attempt=attempt)


def used(slot: int = 0, incarnation: int = 0) -> PodObservation:
    return make_sandbox(slot, incarnation, terminated(0), phase="Succeeded")


def failed(slot: int = 0, incarnation: int = 0, seconds_ago: float = 30) -> PodObservation:
    ended = terminated(137, reason="OOMKilled", at=format_time(NOW - timedelta(seconds=seconds_ago)))
    return make_sandbox(slot, incarnation, ended, phase="Failed")


PLANS: dict[str, tuple[View, list[tuple[int, int]], list[str]]] = {
    "the first ones": (with_sandboxes(size=2), [(0, 0), (1, 0)], []),
    "all of them work": (with_sandboxes(works()), [], []),
    "one that starts is waited for": (with_sandboxes(make_sandbox(0, 0, waiting(), phase="Pending")), [], []),
    "a used one is replaced, and stays until then": (with_sandboxes(used()), [(0, 1)], []),
    "and is deleted once it has a successor": (with_sandboxes(used(), works(0, 1)), [], ["0-0"]),
    "also while that one starts": (
        with_sandboxes(used(0, 3), make_sandbox(0, 4, waiting(), phase="Pending")),
        [],
        ["0-3"],
    ),
    "a failed one is replaced": (with_sandboxes(failed()), [(0, 1)], []),
    "but not at once": (with_sandboxes(failed(seconds_ago=5)), [], []),
    "and later each time": (with_sandboxes(failed(0, 0, 100), failed(0, 1, 15)), [], []),
    "its failures stay for their logs": (with_sandboxes(failed(0, 0, 100), failed(0, 1, 25)), [(0, 2)], []),
    "until another one runs": (with_sandboxes(failed(0, 0), failed(0, 1), works(0, 2)), [], ["0-0", "0-1"]),
    "not while that one starts": (
        with_sandboxes(failed(0, 0), make_sandbox(0, 1, waiting(), phase="Pending")),
        [],
        [],
    ),
    "nor all of them": (
        with_sandboxes(*(failed(0, number, 1000 - number) for number in range(7))),
        [(0, 7)],
        ["0-0", "0-1"],
    ),
    "not before the run's pod has a node": (with_sandboxes(pod=TRAINING), [], []),
    "one that somebody deletes": (with_sandboxes(make_sandbox(0, 2, ready(), deleting=True)), [(0, 3)], []),
    "one that is gone with all that was known of it": (with_sandboxes(works(1, 7), size=2), [(0, 0)], []),
    "an evicted one": (
        with_sandboxes(make_sandbox(0, 0, terminated(137), phase="Failed", reason="Evicted")),
        [(0, 1)],
        [],
    ),
    "of another attempt": (with_sandboxes(works(attempt=2), works()), [], ["0-0"]),
    "of a slot that there is not": (with_sandboxes(works(), works(1)), [], ["1-0"]),
    "not before there is the run's pod": (with_sandboxes(pod=None), [], []),
    "none once the attempt is over": (with_sandboxes(works(), used(1), pod=OVER, size=2), [], ["0-0", "1-0"]),
    "none while the run's pod ends": (with_sandboxes(works(), pod=working_pod(deleting=True)), [], ["0-0"]),
    "a run that asks for none": (make_view(RUNNING, pod=WORKING, sandboxes=(works(),)), [], ["0-0"]),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str) -> None:
    view, created, deleted = PLANS[name]
    plan = plan_sandboxes(view)
    assert plan.create == tuple(Slot(*place) for place in created)
    assert [f"{pod.slot}-{pod.incarnation}" for pod in plan.delete] == deleted


def test_a_failed_one_is_looked_at_when_it_is_due() -> None:
    view = with_sandboxes(failed(seconds_ago=4))
    assert plan_sandboxes(view).due == (NOW + timedelta(seconds=FAILED_SECONDS - 4),)
    seconds = requeue_after(view, assess(view))
    assert seconds is not None
    assert seconds <= FAILED_SECONDS - 4


def test_a_clock_that_was_set_back_delays_nothing_for_long() -> None:
    assert plan_sandboxes(with_sandboxes(failed(seconds_ago=-3600))).create == (Slot(0, 1),)


def test_the_status_counts_them() -> None:
    view = with_sandboxes(used(0, 3), works(0, 4), used(1, 2), size=2)
    found = SandboxPods(desired=2, ready=1, replaced=6, observed_at=format_time(NOW))
    assert observed_sandboxes(view) == found
    assert status_of(view).sandboxes == found


def test_replacements_are_written_no_more_often_than_progress() -> None:
    """However long ago a step was trained: with slow rollouts, all of them would be a write each."""
    long_ago, pace = format_time(NOW - timedelta(minutes=10)), 60
    before = with_sandboxes(works(), trainer=AT_STEP_3)
    metrics = RunMetrics(rollout_reward=0.5, observed_at=long_ago)
    conditions = tuple(each.with_changes(last_transition_time=long_ago) for each in status_of(before).conditions)
    told = status_of(before).with_changes(metrics=metrics, conditions=conditions)
    for seconds, is_written in ((0, False), (pace, True)):
        later = with_sandboxes(used(), works(0, 1), trainer=AT_STEP_3, status=told.to_wire())
        later = replace(later, now=NOW + timedelta(seconds=seconds))
        now = status_of(later)
        assert now.sandboxes == SandboxPods(desired=1, ready=1, replaced=1, observed_at=format_time(later.now))
        assert worth_writing(told, now, later.now, pace) is is_written
        same = derive(replace(later, run=later.run.with_changes(status=now)), assess(later))
        assert same.sandboxes == now.sandboxes


@pytest.mark.parametrize(
    ("pods", "replaced"),
    [((), 9), ((works(0, 3), works(1, 2)), 9), ((used(0, 7), works(0, 8), works(1, 4)), 12)],
    ids=["gone", "some of them gone", "more than were written"],
)
def test_the_count_outlives_the_pods(pods: tuple[PodObservation, ...], replaced: int) -> None:
    """What was written last may be a minute old. None is ready for a trainer that has ended."""
    status = {**RUNNING, "sandboxes": {"desired": 2, "ready": 2, "replaced": 9}}
    view = with_sandboxes(*pods, pod=OVER, status=status, size=2)
    found = SandboxPods(desired=2, ready=0, replaced=replaced, observed_at=format_time(NOW))
    assert observed_sandboxes(view) == found


@pytest.mark.parametrize("status", [None, RUNNING])
def test_a_run_without_them_has_no_count(status: Any) -> None:
    assert observed_sandboxes(make_view(status, pod=WORKING if status else None)) is None


def test_a_start_that_waits_for_their_image_says_so() -> None:
    lacking = make_sandbox(0, 0, waiting("ErrImagePull", "no such tag"), phase="Pending")
    view = with_sandboxes(lacking, status=STARTED, pod=make_pod(ready(), ready(), waiting()))
    found = assess(view)
    assert found.reason == "SandboxFailing"
    assert found.message.startswith(
        "None of 1 sandboxes is ready: Container sandbox of pod sorting-u1abc-1-sandbox-0-0"
    )


def test_training_says_so_too() -> None:
    view = with_sandboxes(failed(), trainer=AT_STEP_3)
    said = assess(view).message
    assert "None of 1 sandboxes is ready: pod sorting-u1abc-1-sandbox-0-0 has failed (sandbox: OOMKilled, exit" in said


def test_a_command_has_no_word_in_the_status() -> None:
    """It may write what the kubelet reads when the server has ended; not when that never ran."""
    for code, is_told in ((137, False), (1, False), (127, True), (255, True)):
        ended = terminated(code, "exec: no such file", at=format_time(NOW - timedelta(seconds=5)))
        view = with_sandboxes(make_sandbox(0, 0, ended, phase="Failed"), trainer=AT_STEP_3)
        assert ("no such file" in assess(view).message) is is_told


def test_tools_that_cannot_be_brought_are_named() -> None:
    ended = {"initContainerStatuses": [{"name": "tools", **terminated(128, "cp: /opt/rl-tools: no such folder")}]}
    view = with_sandboxes(make_sandbox(0, 0, waiting(), phase="Failed", **ended), trainer=AT_STEP_3)
    assert "(tools: Error, exit code 128: cp: /opt/rl-tools: no such folder)" in assess(view).message


def test_while_one_works_nothing_is_said() -> None:
    view = with_sandboxes(failed(), works(1), size=2, trainer=AT_STEP_3)
    assert assess(view).message == "Training: step 3 of 40."


STATES = st.sampled_from([ready(), terminated(0), terminated(137), waiting()])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), STATES), max_size=12), st.integers(1, 4))
def test_plans_lead_to_one_pod_in_each_slot(found: list[tuple[int, int, Any]], size: int) -> None:
    """Whatever there is: after the plan each slot has one live pod at most, and the newest is never lost."""
    places = {(slot, incarnation): container for slot, incarnation, container in found}
    pods = [
        make_sandbox(slot, incarnation, container, phase="Running" if "running" in container["state"] else "Failed")
        for (slot, incarnation), container in places.items()
    ]
    plan = plan_sandboxes(with_sandboxes(*pods, size=size))
    left = sorted((pod for pod in pods if pod not in plan.delete), key=lambda pod: pod.incarnation)
    for slot in range(size):
        here = [pod for pod in left if pod.slot == slot]
        new = [place for place in plan.create if place.slot == slot]
        assert len([pod for pod in here if not pod.over]) + len(new) <= 1
        newest = max((i for (s, i) in places if s == slot), default=-1)
        assert [pod.incarnation for pod in here][-1:] == ([newest] if newest >= 0 else [])
        assert not [pod for pod in here[:-1] if not pod.over], "only failed ones stay with it"
        assert [place.incarnation for place in new] in ([], [newest + 1])
    assert not [pod for pod in left if pod.slot >= size]
