"""A pod's status in Kubernetes' own shape, from what is known of its processes.

`PodRecords` holds what is known while they run, and reports every change of it at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from rl_operator.api.kubernetes_objects import (
    Container,
    ContainerStateObject,
    ContainerStatusObject,
    ObjectCondition,
    PodObject,
    PodSpec,
    PodStatus,
    TerminatedState,
)
from rl_operator.local.state.layout import PodFolder
from rl_operator.status.observed.observation import format_time, parse_time

ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    started: datetime


@dataclass(frozen=True, slots=True)
class Terminated:
    """`exit_code` is 128 + n after signal n."""

    exit_code: int
    reason: str
    message: str
    started: datetime | None
    finished: datetime


ContainerState = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """What is known about one container. `ready` is true only while it runs and its readiness probe passes."""

    name: str
    image: str
    sidecar: bool
    state: ContainerState
    ready: bool = False
    restarts: int = 0
    before: Terminated | None = None
    """How its last instance ended, if it was started again."""

    def now(self, state: ContainerState, *, ready: bool = False) -> Self:
        return replace(self, state=state, ready=ready)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended, if its containers alone do not show it. `disruption` is the reason of a DisruptionTarget."""

    reason: str
    message: str
    disruption: str | None = None


def pod_status(
    records: Sequence[ContainerRecord], started: datetime, *, over: bool, end: PodEnd | None = None
) -> PodStatus:
    """`status` of a pod: phase, conditions, both lists of container statuses, addresses.

    `over`: no container will run again; only then is the phase a final one.
    """
    phase = _final_phase(records, end) if over else _phase(records)
    status: PodStatus = {
        "phase": phase,
        "startTime": format_time(started),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "conditions": _conditions(records, phase, end),
        "initContainerStatuses": [_container_status(r) for r in records if r.sidecar],
        "containerStatuses": [_container_status(r) for r in records if not r.sidecar],
    }
    return status if end is None else status | {"reason": end.reason, "message": end.message}


def _phase(records: Sequence[ContainerRecord]) -> str:
    waiting = all(isinstance(record.state, Waiting) for record in records if not record.sidecar)
    return "Pending" if waiting else "Running"


def _final_phase(records: Sequence[ContainerRecord], end: PodEnd | None) -> str:
    codes = [r.state.exit_code for r in records if not r.sidecar and isinstance(r.state, Terminated)]
    return "Failed" if end is not None or any(codes) else "Succeeded"


def _conditions(records: Sequence[ContainerRecord], phase: str, end: PodEnd | None) -> list[ObjectCondition]:
    ready = phase == "Running" and all(r.ready for r in records)
    holds: Mapping[str, bool] = {
        "PodScheduled": True,
        "Initialized": all(r.ready for r in records if r.sidecar) or phase != "Pending",
        "ContainersReady": ready,
        "Ready": ready,
    }
    conditions: list[ObjectCondition] = [
        {"type": type_, "status": "True" if value else "False"} for type_, value in holds.items()
    ]
    if end is not None and end.disruption:
        conditions.append(
            {"type": "DisruptionTarget", "status": "True", "reason": end.disruption, "message": end.message}
        )
    return conditions


def _container_status(record: ContainerRecord) -> ContainerStatusObject:
    status: ContainerStatusObject = {
        "name": record.name,
        "image": record.image,
        "ready": record.ready,
        "started": isinstance(record.state, Running),
        "restartCount": record.restarts,
        "state": _state(record.state),
    }
    return status | {"lastState": _state(record.before)} if record.before else status


def _state(state: ContainerState) -> ContainerStateObject:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, "message": state.message}}
    if isinstance(state, Running):
        return {"running": {"startedAt": format_time(state.started)}}
    terminated: TerminatedState = {
        "exitCode": state.exit_code,
        "reason": state.reason,
        "message": state.message,
        "finishedAt": format_time(state.finished),
    }
    if state.started is not None:
        terminated["startedAt"] = format_time(state.started)
    return {"terminated": terminated}


Report = Callable[[PodStatus], None]
"""Receives the pod's new status."""


class PodRecords:
    """By the containers' names, sidecars first."""

    def __init__(self, spec: PodSpec, report: Report) -> None:
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
        """The container does not exist, and why."""
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


def _new_record(container: Container) -> ContainerRecord:
    sidecar = container.get("restartPolicy") == "Always"
    reason = "ContainerCreating" if sidecar else "PodInitializing"
    return ContainerRecord(container["name"], container.get("image", ""), sidecar, Waiting(reason))


SUPERVISOR_LOST = PodEnd(
    "SupervisorLost", "The supervisor of this run ended unexpectedly, and its processes with it.", "SupervisorLost"
)

KILLED = 137


def lost_pod_status(pod: PodObject, folder: PodFolder, end: PodEnd) -> PodStatus:
    """The status that a kubelet writes for containers that it can no longer find; they keep their last messages."""
    now, spec, ended = datetime.now(UTC), pod["spec"], _ended(pod["status"])
    records = [
        _lost_container(container, sidecar, ended.get(container["name"]) or _killed(container["name"], folder, now))
        for containers, sidecar in ((spec.get("initContainers", []), True), (spec["containers"], False))
        for container in containers
    ]
    started = pod["status"].get("startTime")
    return pod_status(records, parse_time(started) if started else now, over=True, end=end)


def _lost_container(container: Container, sidecar: bool, state: Terminated) -> ContainerRecord:
    return ContainerRecord(container["name"], container.get("image", ""), sidecar, state)


def _killed(name: str, folder: PodFolder, now: datetime) -> Terminated:
    path = folder.termination_message(name)
    message = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return Terminated(KILLED, "ContainerStatusUnknown", message, None, now)


def _ended(status: PodStatus) -> dict[str, Terminated]:
    """The containers whose end was still recorded, by name: e.g. a trainer that had succeeded."""
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {each["name"]: _terminated(end) for each in statuses if (end := each["state"].get("terminated"))}


def _terminated(end: TerminatedState) -> Terminated:
    started = end.get("startedAt")
    return Terminated(
        exit_code=end["exitCode"],
        reason=end["reason"],
        message=end["message"],
        started=parse_time(started) if started else None,
        finished=parse_time(end["finishedAt"]),
    )
