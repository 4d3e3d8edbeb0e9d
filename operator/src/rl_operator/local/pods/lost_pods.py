"""The remains of a pod whose supervisor vanished: its processes died with it, its result is still on disk."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rl_operator.local.pods.pod_status import ContainerRecord, PodEnd, Terminated, pod_status
from rl_operator.local.state.layout import PodFolder
from rl_operator.status.observed.observation import parse_time

SUPERVISOR_LOST = PodEnd(
    "SupervisorLost", "The supervisor of this run ended unexpectedly, and its processes with it.", "SupervisorLost"
)

KILLED = 137


def lost_pod_status(pod: Mapping[str, Any], folder: PodFolder, end: PodEnd) -> dict[str, Any]:
    """The status that a kubelet writes for containers that it can no longer find; they keep their last messages."""
    now, spec, ended = datetime.now(UTC), pod["spec"], _ended(pod["status"])
    records = [
        _lost_container(container, sidecar, ended.get(container["name"]) or _killed(container["name"], folder, now))
        for containers, sidecar in ((spec.get("initContainers", []), True), (spec["containers"], False))
        for container in containers
    ]
    started = pod["status"].get("startTime")
    return pod_status(records, parse_time(started) if started else now, over=True, end=end)


def _lost_container(container: Mapping[str, Any], sidecar: bool, state: Terminated) -> ContainerRecord:
    return ContainerRecord(container["name"], container.get("image", ""), sidecar, state)


def _killed(name: str, folder: PodFolder, now: datetime) -> Terminated:
    path = folder.termination_message(name)
    message = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return Terminated(KILLED, "ContainerStatusUnknown", message, None, now)


def _ended(status: Mapping[str, Any]) -> dict[str, Terminated]:
    """The containers whose end was still recorded, by name: e.g. a trainer that had succeeded."""
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {each["name"]: _terminated(end) for each in statuses if (end := each["state"].get("terminated"))}


def _terminated(end: Mapping[str, Any]) -> Terminated:
    started = end.get("startedAt")
    return Terminated(
        exit_code=end["exitCode"],
        reason=end["reason"],
        message=end["message"],
        started=parse_time(started) if started else None,
        finished=parse_time(end["finishedAt"]),
    )
