"""A pod's status, from its containers' states: also of those that are not processes yet, or never became one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rl_operator.local.pods.pod_status import (
    PodEnd,
    PodRecords,
    container_status,
    pod_status,
    running,
    terminated,
    waiting,
)
from rl_operator.status.observed.observation import observe_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITING, RUNNING = waiting("PodInitializing"), running(NOW)
SPEC = {"initContainers": [{"name": "api"}], "containers": [{"name": "trainer"}, {"name": "environment"}]}


def ended(code: int) -> Any:
    return terminated(code, "Error" if code else "Completed", "told", NOW)


def status_of(api: Any, trainer: Any, *, ready: bool = False, over: bool = False, end: PodEnd | None = None) -> Any:
    states = {"api": api, "trainer": trainer, "environment": trainer}
    statuses = {
        name: container_status({"name": name}, state) | {"ready": ready and "running" in state}
        for name, state in states.items()
    }
    return pod_status(SPEC, statuses, NOW, over=over, end=end)


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
def test_phases(api: Any, trainer: Any, over: bool, phase: str) -> None:
    assert status_of(api, trainer, over=over)["phase"] == phase


def test_ready_needs_every_container() -> None:
    for ready in (True, False):
        status = status_of(RUNNING, RUNNING, ready=ready)
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions["Ready"] == conditions["ContainersReady"] == str(ready)


def test_an_external_cause_is_a_disruption() -> None:
    end = PodEnd("SupervisorLost", "It is gone.", "SupervisorLost")
    status = status_of(ended(0), ended(0), over=True, end=end)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "SupervisorLost", "It is gone.")
    assert {"type": "DisruptionTarget", "status": "True"}.items() <= status["conditions"][-1].items()


def test_status_reads_what_is_written() -> None:
    metadata = {"name": "p", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = status_of(RUNNING, ended(3), ready=True)
    observed = observe_pod({"metadata": metadata, "spec": {}, "status": status})
    assert [(c.name, c.state, c.exit_code) for c in observed.containers] == [
        ("api", "Ready", None),
        ("trainer", "Terminated", 3),
        ("environment", "Terminated", 3),
    ]
    assert observed.address == "127.0.0.1"


@pytest.fixture
def told_records() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def records(told_records: list[dict[str, Any]]) -> PodRecords:
    return PodRecords(SPEC, told_records.append)


def reasons(status: dict[str, Any]) -> list[str]:
    statuses = [*status["initContainerStatuses"], *status["containerStatuses"]]
    return [next(iter(each["state"].values()))["reason"] for each in statuses]


def test_all_containers_wait_for_the_sidecar_first(records: PodRecords, told_records: list[dict[str, Any]]) -> None:
    records.publish()
    assert [(status["phase"], reasons(status)) for status in told_records] == [
        ("Pending", ["ContainerCreating", "PodInitializing", "PodInitializing"])
    ]


def test_a_change_is_reported_once(records: PodRecords, told_records: list[dict[str, Any]]) -> None:
    for _ in range(2):
        records.put("trainer", waiting("CreateContainerError", "no room"))
    assert [reasons(status)[1] for status in told_records] == ["CreateContainerError"]


def test_a_container_that_never_started_keeps_its_reason(
    records: PodRecords, told_records: list[dict[str, Any]]
) -> None:
    records.all_wait("CreateContainerError", "no room")
    for name in ("api", "trainer", "environment"):
        records.never_started(name)
    records.tell_the_end(PodEnd("DeadlineExceeded", "too long"))
    assert (told_records[-1]["phase"], told_records[-1]["reason"]) == ("Failed", "DeadlineExceeded")
    assert told_records[-1]["containerStatuses"][0]["state"]["terminated"]["message"] == "It did not run. no room"
