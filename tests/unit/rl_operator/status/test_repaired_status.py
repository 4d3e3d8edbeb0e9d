"""The pods show how far a run is, whatever others wrote into its status."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import CREATED, make_environment, make_pod, ready

from rl_operator.api.status_fields import RunStatus
from rl_operator.status.attempt.restored import repaired
from rl_operator.status.observed.observation import PodObservation


def status(**fields: Any) -> RunStatus:
    return RunStatus.model_validate({"startTime": "2026-05-01T08:00:00Z", "phase": "Running", **fields})


def pod(attempt: int) -> PodObservation:
    return replace(make_pod(ready(), ready(), ready()), name=f"sorting-u1abc-{attempt}", attempt=attempt)


PODS = (pod(1), pod(2))


@pytest.mark.parametrize("attempt", [2, 3], ids=["as the pods say", "its pod is yet to be created"])
def test_a_current_status_is_left_unchanged(attempt: int) -> None:
    before = status(attempt=attempt, podName=f"sorting-u1abc-{attempt}")
    assert repaired(before, PODS) is before


@pytest.mark.parametrize("pods", [(), (make_environment(0, 0, ready(), attempt=4),)], ids=["none", "an environment's"])
def test_without_its_own_pod_nothing_is_known(pods: tuple[PodObservation, ...]) -> None:
    before = RunStatus()
    assert repaired(before, pods) is before


@pytest.mark.parametrize(
    "edited", [{"attempt": 1, "podName": "sorting-u1abc-1"}, {"attempt": 1}, {}], ids=["set back", "half", "removed"]
)
def test_a_reset_status_is_repaired(edited: dict[str, Any]) -> None:
    after = repaired(status(**edited), PODS)
    assert (after.attempt, after.pod_name, after.start_time) == (2, "sorting-u1abc-2", "2026-05-01T08:00:00Z")


def test_a_run_with_a_pod_was_started() -> None:
    after = repaired(RunStatus(), PODS[:1])
    assert (after.attempt, after.pod_name, after.start_time) == (1, "sorting-u1abc-1", CREATED)
