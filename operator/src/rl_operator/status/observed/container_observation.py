"""What is observed about one container of a pod."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from rl_operator.api.kubernetes_objects import (
    Container,
    ContainerStateObject,
    ContainerStatusObject,
    PodObject,
    TerminatedState,
    WaitingState,
)
from rl_operator.status.text.sentences import clean, meant

ContainerState = Literal["Waiting", "Running", "Ready", "Terminated"]

CONFIG_MISSING: Final = "CreateContainerConfigError"
"""The kubelet's reason for a container whose variables come from a missing Secret or ConfigMap."""

OUT_OF_MEMORY: Final = "OOMKilled"
NEVER_RAN: Final = frozenset({"StartError", "ContainerCannotRun"})
"""The container runtime's reasons for a process that it could not start; then the message is its own."""

CRASHING: Final = "CrashLoopBackOff"
"""The kubelet's reason for a container that ended and waits to be started again."""


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A variable of a container that comes from a Secret, and without which the container does not start."""

    variable: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class ContainerObservation:
    """One container. `state` is Ready only while it runs and its readiness probe passes."""

    name: str
    state: ContainerState
    reason: str | None = None
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    finished_at: datetime | None = None
    secrets: tuple[SecretUse, ...] = ()
    """Only while it waits for something that its variables come from."""

    memory_limit: str | None = None
    """Only if it was killed for exceeding memory."""

    ended_before: str = ""
    """How its last instance failed: until the one after it is ready."""


def observe_container(status: ContainerStatusObject, pod: PodObject) -> ContainerObservation:
    state = status.get("state") or ContainerStateObject()
    waiting, ended = state.get("waiting") or WaitingState(), state.get("terminated") or TerminatedState()
    kind: ContainerState = "Terminated" if "terminated" in state else "Running" if "running" in state else "Waiting"
    ready = kind == "Running" and status.get("ready", False)
    finished, reason = ended.get("finishedAt"), ended.get("reason", waiting.get("reason"))
    return ContainerObservation(
        name=status["name"],
        state="Ready" if ready else kind,
        reason=reason,
        message=ended.get("message", waiting.get("message", "")),
        exit_code=ended.get("exitCode"),
        restarts=status.get("restartCount", 0),
        finished_at=datetime.fromisoformat(finished) if finished else None,
        secrets=_secrets(pod, status["name"]) if reason == CONFIG_MISSING else (),
        memory_limit=_memory_limit(pod, status["name"]) if reason == OUT_OF_MEMORY else None,
        ended_before="" if ready else _ended_before(status, pod),
    )


def _ended_before(status: ContainerStatusObject, pod: PodObject) -> str:
    """How the last instance of a container failed: reason, exit code, its limit or its message."""
    last = (status.get("lastState") or {}).get("terminated") or {}
    if not last.get("exitCode"):
        return ""
    limit = _memory_limit(pod, status["name"]) if last.get("reason") == OUT_OF_MEMORY else None
    said = last.get("message", "")
    words = f"its memory limit is {limit}" if limit else clean(said) if last.get("reason") in NEVER_RAN else meant(said)
    return f"{last.get('reason', 'Error')}, exit code {last['exitCode']}: {words}".removesuffix(": ")


def _memory_limit(pod: PodObject, container: str) -> str | None:
    limits = (spec.get("resources", {}).get("limits", {}) for spec in _specs(pod) if spec["name"] == container)
    return next((str(limit["memory"]) for limit in limits if "memory" in limit), None)


def _secrets(pod: PodObject, container: str) -> tuple[SecretUse, ...]:
    """What a container needs from Secrets, by its pod's spec."""
    variables = [v for spec in _specs(pod) if spec["name"] == container for v in spec.get("env", ())]
    references = [(v["name"], (v.get("valueFrom") or {}).get("secretKeyRef")) for v in variables]
    return tuple(SecretUse(name, r["name"], r["key"]) for name, r in references if r and not r.get("optional"))


def _specs(pod: PodObject) -> Iterator[Container]:
    yield from pod["spec"].get("initContainers", ())
    yield from pod["spec"].get("containers", ())
