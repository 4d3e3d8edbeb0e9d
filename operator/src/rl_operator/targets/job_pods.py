"""The Jobs of a target as rlctl and the tools see them: a pod whose containers wait, run and end, each with a log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rl_operator.api.kubernetes_objects import (
    ContainerStateObject,
    JobObject,
    ObjectCondition,
    PodObject,
    PodStatus,
    TerminatedState,
    WaitingState,
)

JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class JobContainer:
    """`reason`: why it waits, or how it ended, if there is something to report."""

    state: Literal["waiting", "running", "ended"]
    reason: str = ""


@dataclass(frozen=True)
class JobPod:
    """The newest pod of a Job. `name` None: there is none, yet or anymore. `folder`: its logs, on this machine."""

    name: str | None = None
    containers: Mapping[str, JobContainer] = field(default_factory=dict)
    folder: str = ""


def job_pod(job: JobObject, pods: Iterable[PodObject]) -> JobPod:
    """From the API server's object."""
    newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    names = [container["name"] for container in job["spec"]["template"]["spec"]["containers"]]
    if newest is None:
        return JobPod(None, dict.fromkeys(names, _without_pod(job)))
    status = newest.get("status", {})
    states = {each["name"]: each["state"] for each in status.get("containerStatuses", [])}
    return JobPod(newest["metadata"]["name"], {name: _container(states.get(name, {}), status) for name in names})


def _without_pod(job: JobObject) -> JobContainer:
    conditions = job.get("status", {}).get("conditions", [])
    over = next((each for each in conditions if each["type"] in _OVER and each["status"] == "True"), None)
    return JobContainer("ended", _said(over)) if over else JobContainer("waiting", "its pod is not there yet")


_OVER: Final = ("Failed", "Complete")


def _container(state: ContainerStateObject, status: PodStatus) -> JobContainer:
    if "running" in state:
        return JobContainer("running")
    if ended := state.get("terminated"):
        return JobContainer(
            "ended", f"exited ({ended['exitCode']}) {_said(ended)}".rstrip() if ended["exitCode"] else ""
        )
    if status.get("phase") in ("Failed", "Succeeded"):
        return JobContainer("ended", _said(status))
    unmet = [each for each in status.get("conditions", []) if each["status"] == "False"]
    return JobContainer("waiting", _said(state.get("waiting") or (unmet[0] if unmet else {})))


def _said(state: TerminatedState | WaitingState | ObjectCondition | PodStatus) -> str:
    return ": ".join(part for part in (state.get("reason"), state.get("message")) if part)
