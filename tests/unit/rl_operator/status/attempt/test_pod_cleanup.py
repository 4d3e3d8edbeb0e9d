from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import NOW, make_environment, make_pod, make_run, ready, result, terminated

from rl_operator.api.names import POD_FINALIZER
from rl_operator.status.attempt.pod_cleanup import LOST_AFTER, expires_at, late_pods, lost_at, surplus_pods, with_loss
from rl_operator.status.observed.observation import PodObservation, format_time

OVER = {"phase": "Failed", "completionTime": format_time(NOW)}


def pod(attempt: int, **changes: object) -> PodObservation:
    return replace(make_pod(ready(), ready()), name=f"p-{attempt}", attempt=attempt, **{"finalizers": (), **changes})


def test_a_run_expires_its_ttl_after_its_end() -> None:
    assert expires_at(make_run(OVER, ttlSecondsAfterFinished=60)) == NOW + timedelta(seconds=60)
    assert expires_at(make_run(OVER, ttlSecondsAfterFinished=0)) == NOW


@pytest.mark.parametrize("status", [OVER, {}, {"phase": "Running"}, {"phase": "Failed"}, {**OVER, "phase": "Stopped"}])
def test_other_runs_stay(status: dict[str, str]) -> None:
    ttl = None if status == OVER else 0
    assert expires_at(make_run(status, ttlSecondsAfterFinished=ttl)) is None


def test_the_pods_of_the_five_newest_ended_attempts_stay() -> None:
    pods = [pod(n) for n in range(1, 9)]
    assert [p.attempt for p in surplus_pods(pods, 8)] == [2, 1], "the eighth has not ended"
    assert [p.attempt for p in surplus_pods(pods, None)] == [3, 2, 1]


def test_a_pod_with_an_unread_result_stays() -> None:
    pods = [pod(n, finalizers=(POD_FINALIZER,) if n == 1 else ()) for n in range(1, 8)]
    assert [p.attempt for p in surplus_pods(pods, None)] == [2]


def test_environment_pods_are_ignored() -> None:
    assert surplus_pods([make_environment(n, 1, ready()) for n in range(9)], None) == ()


SECOND: dict[str, Any] = {"phase": "Running", "attempt": 2, "attempts": [{"attempt": 1, "pod": "p-1"}]}
ENDED = SECOND | {"phase": "Stopped", "attempts": [*SECOND["attempts"], {"attempt": 2, "pod": "p-2"}]}
FIRST: dict[str, Any] = {"phase": "Running", "attempt": 1}

WORKING = make_pod(ready(), ready())


@pytest.mark.parametrize(("status", "late"), [(SECOND, [1]), (ENDED, [1, 2]), (FIRST, []), ({}, [])])
def test_pods_of_ended_attempts_are_late(status: dict[str, Any], late: list[int]) -> None:
    pods = [replace(WORKING, attempt=number) for number in (1, 2)]
    assert [pod.attempt for pod in late_pods(pods, make_run(status).status)] == late


def test_finished_and_terminating_pods_are_left_alone() -> None:
    pods = [replace(WORKING, phase="Failed"), replace(WORKING, delete_by=NOW), make_environment(1, 1, ready())]
    assert late_pods(pods, make_run(ENDED).status) == ()


DUE = NOW - LOST_AFTER
DELETING = make_pod(ready(), ready(), deleting=True, delete_by=format_time(DUE))


def test_a_minute_after_it_should_have_ended() -> None:
    assert lost_at(DELETING) == NOW
    assert not with_loss(DELETING, NOW - timedelta(seconds=1)).over
    lost = with_loss(DELETING, NOW)
    assert (lost.lost, lost.over) == (True, True)


NEVER = {
    "it is not being deleted": make_pod(ready(), ready()),
    "it is over": make_pod(
        terminated(0), terminated(0, result()), phase="Succeeded", deleting=True, delete_by=format_time(DUE)
    ),
    "no node has it": make_pod(ready(), ready(), node="", deleting=True, delete_by=format_time(DUE)),
}


@pytest.mark.parametrize("pod", NEVER.values(), ids=NEVER)
def test_pods_that_are_never_lost(pod: PodObservation) -> None:
    assert lost_at(pod) is None
    assert not with_loss(pod, NOW + timedelta(days=1)).lost
