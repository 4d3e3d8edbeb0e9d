from datetime import UTC, datetime

import pytest

from rl_operator.local.pods.pod_status import (
    ContainerRecord,
    ContainerState,
    PodEnd,
    Running,
    Terminated,
    Waiting,
    pod_status,
)
from rl_operator.status.observed.observation import observe_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITING, RUNNING = Waiting("PodInitializing"), Running(NOW)


def ended(code: int) -> Terminated:
    return Terminated(code, "Error" if code else "Completed", "told", NOW, NOW)


def records(api: ContainerState, trainer: ContainerState, *, ready: bool = False) -> list[ContainerRecord]:
    states = {"api": api, "trainer": trainer, "environment": trainer}
    return [
        ContainerRecord(name, "image", name == "api", state, ready=ready and isinstance(state, Running))
        for name, state in states.items()
    ]


@pytest.mark.parametrize(
    ("api", "trainer", "over", "phase"),
    [
        pytest.param(WAITING, WAITING, False, "Pending", id="new"),
        pytest.param(RUNNING, WAITING, False, "Pending", id="initializing"),
        pytest.param(RUNNING, RUNNING, False, "Running", id="running"),
        pytest.param(RUNNING, ended(0), False, "Running", id="the sidecar is on its way out"),
        pytest.param(ended(0), ended(0), False, "Running", id="ended, but not yet over"),
        pytest.param(ended(0), ended(0), True, "Succeeded", id="success"),
        pytest.param(ended(137), ended(0), True, "Succeeded", id="a sidecar's exit code does not count"),
        pytest.param(ended(0), ended(1), True, "Failed", id="failure"),
    ],
)
def test_phases(api: ContainerState, trainer: ContainerState, over: bool, phase: str) -> None:
    assert pod_status(records(api, trainer), NOW, over=over)["phase"] == phase


def test_ready_needs_every_container() -> None:
    for ready in (True, False):
        status = pod_status(records(RUNNING, RUNNING, ready=ready), NOW, over=False)
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions["Ready"] == conditions["ContainersReady"] == str(ready)


def test_an_external_cause_is_a_disruption() -> None:
    end = PodEnd("SupervisorLost", "It is gone.", "SupervisorLost")
    status = pod_status(records(ended(0), ended(0)), NOW, over=True, end=end)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "SupervisorLost", "It is gone.")
    assert {"type": "DisruptionTarget", "status": "True"}.items() <= status["conditions"][-1].items()


def test_status_reads_what_is_written() -> None:
    metadata = {"name": "p", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = pod_status(records(RUNNING, ended(3), ready=True), NOW, over=False)
    observed = observe_pod({"metadata": metadata, "spec": {}, "status": status})
    assert [(c.name, c.state, c.exit_code) for c in observed.containers] == [
        ("api", "Ready", None),
        ("trainer", "Terminated", 3),
        ("environment", "Terminated", 3),
    ]
    assert observed.address == "127.0.0.1"
