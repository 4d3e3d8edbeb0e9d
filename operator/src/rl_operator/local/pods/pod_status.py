"""A pod's status in Kubernetes' own shape, from what is known of its processes.

`PodRecords` holds what is known while they run, and reports every change of it at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

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
KILLED = 137


def waiting(reason: str, message: str = "") -> ContainerStateObject:
    return {"waiting": {"reason": reason, "message": message}}


def running(started: datetime) -> ContainerStateObject:
    return {"running": {"startedAt": format_time(started)}}


def terminated(exit_code: int, reason: str, message: str, started: datetime | None = None) -> ContainerStateObject:
    """It ended just now. `exit_code` is 128 + n after signal n."""
    state: TerminatedState = {
        "exitCode": exit_code,
        "reason": reason,
        "message": message,
        "finishedAt": format_time(datetime.now(UTC)),
    }
    return {"terminated": state if started is None else state | {"startedAt": format_time(started)}}


def _vanished(message: str) -> ContainerStateObject:
    """What a kubelet says of a container that it cannot find."""
    return terminated(KILLED, "ContainerStatusUnknown", message)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended, if its containers alone do not show it. `disruption` is the reason of a DisruptionTarget."""

    reason: str
    message: str
    disruption: str | None = None


SUPERVISOR_LOST = PodEnd(
    "SupervisorLost", "The supervisor of this run ended unexpectedly, and its processes with it.", "SupervisorLost"
)


def container_status(container: Container, state: ContainerStateObject) -> ContainerStatusObject:
    """Of one that is not ready."""
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "ready": False,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def pod_status(
    spec: PodSpec,
    containers: Mapping[str, ContainerStatusObject],
    started: datetime,
    *,
    over: bool,
    end: PodEnd | None = None,
) -> PodStatus:
    """`status` of a pod: phase, conditions, both lists of container statuses, addresses.

    `over`: no container will run again; only then is the phase a final one.
    """
    sidecars = [containers[each["name"]] for each in spec.get("initContainers", ())]
    regular = [containers[each["name"]] for each in spec["containers"]]
    states = [each["state"] for each in regular]
    if over:
        failed = end is not None or any(state["terminated"]["exitCode"] for state in states if "terminated" in state)
        phase = "Failed" if failed else "Succeeded"
    else:
        phase = "Pending" if all("waiting" in state for state in states) else "Running"
    initialized = all(each["ready"] for each in sidecars)
    ready = phase == "Running" and initialized and all(each["ready"] for each in regular)
    holds = {
        "PodScheduled": True,
        "Initialized": initialized or phase != "Pending",
        "ContainersReady": ready,
        "Ready": ready,
    }
    conditions: list[ObjectCondition] = [{"type": type_, "status": str(value)} for type_, value in holds.items()]
    if end is not None and end.disruption:
        conditions.append(
            {"type": "DisruptionTarget", "status": "True", "reason": end.disruption, "message": end.message}
        )
    status: PodStatus = {
        "phase": phase,
        "startTime": format_time(started),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "conditions": conditions,
        "initContainerStatuses": sidecars,
        "containerStatuses": regular,
    }
    return status if end is None else status | {"reason": end.reason, "message": end.message}


Report = Callable[[PodStatus], None]
"""Receives the pod's new status."""


class PodRecords:
    """The statuses of a pod's containers, by name."""

    def __init__(self, spec: PodSpec, report: Report) -> None:
        self._spec = spec
        self._report = report
        self._started = datetime.now(UTC)
        kinds = ((spec.get("initContainers", []), "ContainerCreating"), (spec["containers"], "PodInitializing"))
        self._statuses = {
            each["name"]: container_status(each, waiting(reason)) for containers, reason in kinds for each in containers
        }

    def __getitem__(self, name: str) -> ContainerStateObject:
        return self._statuses[name]["state"]

    def put(self, name: str, state: ContainerStateObject, *, ready: bool = False) -> None:
        """`ready` is true only while it runs and its readiness probe passes."""
        self._change(name, {"state": state, "ready": ready, "started": "running" in state})

    def restart(self, name: str, state: ContainerStateObject, ended: ContainerStateObject) -> None:
        """It is started again, waits for that, and how it ended before."""
        restarts = self._statuses[name]["restartCount"] + 1
        waits: ContainerStatusObject = {"state": state, "ready": False, "started": False}
        self._change(name, {**waits, "restartCount": restarts, "lastState": ended})

    def all_wait(self, reason: str, why: str) -> None:
        for name in self._statuses:
            self.put(name, waiting(reason, why))

    def never_started(self, name: str) -> None:
        why = self[name].get("waiting", {}).get("message", "")
        self.put(name, _vanished(f"It did not run. {why}".strip()))

    def publish(self) -> None:
        self._report(pod_status(self._spec, self._statuses, self._started, over=False))

    def tell_the_end(self, end: PodEnd | None) -> None:
        """No container will run again."""
        self._report(pod_status(self._spec, self._statuses, self._started, over=True, end=end))

    def _change(self, name: str, changes: ContainerStatusObject) -> None:
        changed = self._statuses[name] | changes
        if changed != self._statuses[name]:
            self._statuses[name] = changed
            self.publish()


def lost_pod_status(pod: PodObject, folder: PodFolder, end: PodEnd) -> PodStatus:
    """The status that a kubelet writes for containers that it can no longer find. They keep their last messages, and
    ends that were still recorded count: e.g. a trainer that had succeeded.
    """
    before, spec = pod["status"], pod["spec"]
    recorded = (*before.get("initContainerStatuses", ()), *before.get("containerStatuses", ()))
    ends = {each["name"]: each["state"] for each in recorded if "terminated" in each["state"]}
    statuses = {
        each["name"]: container_status(each, ends.get(each["name"]) or _vanished(_last_message(each, folder)))
        for each in (*spec.get("initContainers", ()), *spec["containers"])
    }
    started = before.get("startTime")
    return pod_status(spec, statuses, parse_time(started) if started else datetime.now(UTC), over=True, end=end)


def _last_message(container: Container, folder: PodFolder) -> str:
    path = folder.termination_message(container["name"])
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
