"""A pod that works for an ended attempt is late."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import NOW, make_environment, make_pod, make_run, ready

from rl_operator.status.attempt.pod_cleanup import late_pods

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
