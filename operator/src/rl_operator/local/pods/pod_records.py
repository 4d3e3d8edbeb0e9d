"""What is known of one pod's containers while they run; every change of it is reported at once."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rl_operator.local.pods.pod_status import ContainerRecord, PodEnd, Terminated, Waiting, pod_status

Report = Callable[[dict[str, Any]], None]
"""Takes the pod's new status."""


class PodRecords:
    """By the containers' names, sidecars first."""

    def __init__(self, spec: Mapping[str, Any], report: Report) -> None:
        self._report = report
        self._started = datetime.now(UTC)
        containers = (*spec.get("initContainers", ()), *spec["containers"])
        self._records = {container["name"]: _new_record(container) for container in containers}

    def __getitem__(self, name: str) -> ContainerRecord:
        return self._records[name]

    def put(self, record: ContainerRecord) -> None:
        if record != self._records[record.name]:
            self._records[record.name] = record
            self.publish()

    def wait(self, name: str, reason: str, why: str) -> None:
        """The container is not there, and why."""
        self.put(self._records[name].now(Waiting(reason, why)))

    def all_wait(self, reason: str, why: str) -> None:
        for name in self._records:
            self.wait(name, reason, why)

    def never_started(self, name: str) -> None:
        state = self._records[name].state
        why = state.message if isinstance(state, Waiting) else ""
        message = f"It did not run. {why}".strip()
        ended = Terminated(137, "ContainerStatusUnknown", message, None, datetime.now(UTC))
        self.put(self._records[name].now(ended))

    def publish(self) -> None:
        self._report(pod_status(tuple(self._records.values()), self._started, over=False))

    def tell_the_end(self, end: PodEnd | None) -> None:
        """No container will run again."""
        self._report(pod_status(tuple(self._records.values()), self._started, over=True, end=end))


def _new_record(container: Mapping[str, Any]) -> ContainerRecord:
    sidecar = container.get("restartPolicy") == "Always"
    reason = "ContainerCreating" if sidecar else "PodInitializing"
    return ContainerRecord(container["name"], container.get("image", ""), sidecar, Waiting(reason))
