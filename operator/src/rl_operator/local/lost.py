"""What is left of a pod whose supervisor vanished: its processes died with it, its result is still on disk."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rl_operator.local.layout import PodFolder
from rl_operator.local.pod_status import ContainerRecord, PodEnd, Terminated, pod_status
from rl_operator.status.observation import parse_time

SUPERVISOR_LOST = PodEnd(
    "SupervisorLost", "The supervisor of this run ended unexpectedly, and its processes with it.", "SupervisorLost"
)

KILLED = 137


def lost_pod_status(pod: Mapping[str, Any], folder: PodFolder, end: PodEnd) -> dict[str, Any]:
    """The status a kubelet writes for containers that it cannot find any more; they keep their last messages."""
    now, spec = datetime.now(UTC), pod["spec"]
    records = [
        _lost_container(container, sidecar, folder, now)
        for containers, sidecar in ((spec.get("initContainers", []), True), (spec["containers"], False))
        for container in containers
    ]
    started = pod["status"].get("startTime")
    return pod_status(records, parse_time(started) if started else now, over=True, end=end)


def _lost_container(container: Mapping[str, Any], sidecar: bool, folder: PodFolder, now: datetime) -> ContainerRecord:
    path = folder.termination_message(container["name"])
    message = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    state = Terminated(KILLED, "ContainerStatusUnknown", message, None, now)
    return ContainerRecord(container["name"], container.get("image", ""), sidecar, state)
