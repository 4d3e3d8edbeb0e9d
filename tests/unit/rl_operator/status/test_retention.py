from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.rl_operator.status.builders import NOW, make_environment, make_pod, make_run, ready

from rl_operator.status.attempt.pod_cleanup import expires_at, surplus_pods
from rl_operator.status.observed.observation import PodObservation, format_time

OVER = {"phase": "Failed", "completionTime": format_time(NOW)}


def pod(attempt: int, **changes: object) -> PodObservation:
    return replace(make_pod(ready(), ready()), name=f"p-{attempt}", attempt=attempt, **{"held": False, **changes})


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
    pods = [pod(n, held=n == 1) for n in range(1, 8)]
    assert [p.attempt for p in surplus_pods(pods, None)] == [2]


def test_environment_pods_are_ignored() -> None:
    assert surplus_pods([make_environment(n, 1, ready()) for n in range(9)], None) == ()
