"""Containers that others put into a run's pod, like a proxy: no success waits for them, no failure is made of them."""

from tests.unit.rl_operator.status.builders import (
    RUNNING,
    STARTED,
    make_pod,
    make_view,
    ready,
    result,
    running,
    terminated,
    waiting,
)

from rl_operator.status.attempt.pod_cleanup import late_pods
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.phase_and_action import assess
from rl_operator.status.text.phase_table import Situation

Container = dict[str, object]


def pod_with(proxy: Container, trainer: Container, environment: Container, phase: str = "Running") -> PodObservation:
    statuses = [
        {"name": "environment", **environment},
        {"name": "proxy", **proxy},
        {"name": "trainer", **trainer},
    ]
    return make_pod(ready(), trainer, phase=phase, containerStatuses=statuses)


def test_success_does_not_wait_for_a_container_that_never_ends() -> None:
    for proxy in (ready(), waiting("ImagePullBackOff")):
        pod = pod_with(proxy, terminated(0, result()), terminated(0))
        assert assess(make_view(RUNNING, pod=pod)).situation is Situation.SUCCEEDED


def test_its_pod_is_deleted_once_the_attempt_is_recorded() -> None:
    pod = pod_with(ready(), terminated(0, result()), terminated(0))
    record = {"attempt": 1, "pod": pod.name, "reason": "Succeeded"}
    assert late_pods([pod], make_view({**RUNNING, "attempts": [record]}).run.status) == (pod,)


def test_a_pod_with_a_container_of_ours_that_works_is_not_over() -> None:
    assert not pod_with(ready(), terminated(0, result()), ready()).over


def test_one_that_fails_is_not_the_runs_failure() -> None:
    starting = assess(make_view(STARTED, pod=pod_with(terminated(1), running(), running())))
    assert (starting.situation, starting.reason) == (Situation.STARTING, "PodStarting")
    assert "has failed" not in starting.message
    works = assess(make_view(STARTED, pod=pod_with(terminated(1), ready(), ready())))
    assert works.situation is Situation.RUNNING
    never_ran = assess(make_view(STARTED, pod=pod_with(terminated(1), waiting(), waiting(), phase="Failed")))
    assert never_ran.ending is not None
    assert never_ran.ending.reason == "PodRejected"


def test_kueues_eviction_is_named() -> None:
    said = {"type": "TerminationTarget", "status": "True", "reason": "StoppedByKueue", "message": "Preempted"}
    pod = make_pod(ready(), terminated(143), phase="Failed", deleting=True, conditions=[said])
    ending = assess(make_view(RUNNING, pod=pod)).ending
    assert ending is not None
    assert (ending.reason, ending.message) == ("StoppedByKueue", "Preempted")


def test_one_that_cannot_start_is_told_as_what_it_is() -> None:
    found = assess(make_view(STARTED, pod=pod_with(waiting("ImagePullBackOff"), running(), running())))
    assert "not one of the run's own, cannot start" in found.message
