"""What a pod's status says of containers that are not processes yet, or never became one."""

from typing import Any

import pytest

from rl_operator.local.pods.pod_status import PodEnd, PodRecords

SPEC = {
    "initContainers": [{"name": "api", "restartPolicy": "Always"}],
    "containers": [{"name": "trainer"}, {"name": "environment"}],
}


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
    records.wait("trainer", "CreateContainerError", "no room")
    records.wait("trainer", "CreateContainerError", "no room")
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
