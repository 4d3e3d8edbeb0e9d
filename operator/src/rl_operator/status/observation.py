"""What is observed of a run's children: small, frozen, projected from what Kubernetes and the trainer say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator

from rl_operator.api.model import ObservedModel
from rl_operator.api.names import (
    ATTEMPT_LABEL,
    COMPONENT_LABEL,
    CONTAINERS,
    INCARNATION_LABEL,
    POD_FINALIZER,
    SLOT_LABEL,
    TRAINER_CONTAINER,
    TRAINING_COMPONENT,
)
from rl_operator.api.run import RunMetrics, WandbStatus

ContainerState = Literal["Waiting", "Running", "Ready", "Terminated"]

CONFIG_MISSING: Final = "CreateContainerConfigError"
"""The kubelet's word for a container whose variables come from a Secret or ConfigMap that is not there."""


MAX_STEPS = 2**31 - 1


class ResultError(ObservedModel):
    """The `error` of a trainer's result."""

    error_class: str = Field(alias="class")
    message: str = ""


class ResultCheckpoint(ObservedModel):
    """What a result says of the state at its `statePath`."""

    expires_at: str | None = None


class TrainerResult(ObservedModel):
    """The trainer's termination message (contract: Result)."""

    outcome: Literal["running", "succeeded", "stopped", "failed"]
    attempt: int = 1
    steps_trained: int = 0
    total_steps: int = 0
    training_run_id: str | None = None
    state_path: str | None = None
    sampler_path: str | None = None
    checkpoint: ResultCheckpoint = Field(default_factory=ResultCheckpoint)
    metrics: RunMetrics = Field(default_factory=RunMetrics)
    error: ResultError | None = None


class TrainerCheckpoint(ObservedModel):
    step: int
    state_path: str
    expires_at: str | None = None


class TrainerStatus(ObservedModel):
    """The trainer's own `/status` (contract: Containers). Advisory.

    `waiting` is a sentence on what it waits for and why, `warnings` are few and short. `run_uid` and `attempt` say
    whose trainer answers.
    """

    run_uid: str | None = None
    attempt: int | None = None
    phase: str = "starting"
    step: int = Field(default=0, ge=0, le=MAX_STEPS)
    total_steps: int = Field(default=0, ge=0, le=MAX_STEPS)
    last_step_at: str | None = None
    seconds_per_step: float | None = None
    checkpoint: TrainerCheckpoint | None = None
    metrics: RunMetrics = Field(default_factory=RunMetrics)
    wandb: WandbStatus | None = None
    waiting: str | None = None
    warnings: tuple[str, ...] = ()

    @field_validator("last_step_at")
    @classmethod
    def _is_a_moment(cls, text: str | None) -> str | None:
        """Deadlines compare it: what is no time, or of no time zone, is no answer."""
        if text is not None and parse_time(text).tzinfo is None:
            raise ValueError("has no time zone")
        return text


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A variable of a container that comes from a Secret, and that it does not start without."""

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


@dataclass(frozen=True, slots=True)
class PodObservation:
    """One attempt's pod.

    `over` means that no regular container runs any more, or ever will; `held` that our finalizer is on it.
    """

    name: str
    namespace: str
    uid: str
    run_uid: str
    run_name: str
    attempt: int
    created: datetime
    phase: str
    reason: str | None
    message: str
    containers: tuple[ContainerObservation, ...]
    result: TrainerResult | None
    address: str | None
    deleting: bool
    held: bool
    scheduled: bool
    disruption: str | None
    component: str = TRAINING_COMPONENT
    """training: the run's own pod; environment: a pod of an environment that runs apart."""

    slot: int = 0
    incarnation: int = 0

    def container(self, name: str) -> ContainerObservation | None:
        return next((c for c in self.containers if c.name == name), None)

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed") or (self.deleting and not self.scheduled)


def observe_pod(pod: Mapping[str, Any]) -> PodObservation:
    """Project a pod's manifest (as the API server or the local back end holds it) to what status needs."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels", {})
    owner: Mapping[str, Any] = next((o for o in metadata.get("ownerReferences", []) if o.get("controller")), {})
    statuses = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    trainer: Mapping[str, Any] = next((s for s in statuses if s["name"] == TRAINER_CONTAINER), {})
    disruption = next((c for c in status.get("conditions") or [] if c["type"] == "DisruptionTarget"), None)
    return PodObservation(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata.get("uid", ""),
        run_uid=owner.get("uid", ""),
        run_name=owner.get("name", ""),
        attempt=int(labels.get(ATTEMPT_LABEL, "1")),
        created=parse_time(metadata["creationTimestamp"]),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or _scheduling_reason(status),
        message=status.get("message", ""),
        containers=tuple(_observe_container(s, pod) for s in sorted(statuses, key=_place)),
        result=parse_result((trainer.get("state") or {}).get("terminated", {}).get("message", "")),
        address=status.get("podIP"),
        deleting="deletionTimestamp" in metadata,
        held=POD_FINALIZER in metadata.get("finalizers", []),
        scheduled=bool(pod.get("spec", {}).get("nodeName")),
        disruption=disruption["reason"] if disruption and disruption["status"] == "True" else None,
        component=labels.get(COMPONENT_LABEL, TRAINING_COMPONENT),
        slot=int(labels.get(SLOT_LABEL, "0")),
        incarnation=int(labels.get(INCARNATION_LABEL, "0")),
    )


def parse_result(message: str) -> TrainerResult | None:
    """Read a termination message; None when it is no result of ours (e.g. the last lines of a log)."""
    try:
        return TrainerResult.model_validate(json.loads(message))
    except (ValueError, ValidationError):
        return None


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time as Kubernetes writes it."""
    return datetime.fromisoformat(text)


def format_time(time: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(status: Mapping[str, Any]) -> int:
    """Containers in the order in which people think of them; the kubelet sorts by name."""
    name = status["name"]
    return CONTAINERS.index(name) if name in CONTAINERS else len(CONTAINERS)


def _scheduling_reason(status: Mapping[str, Any]) -> str | None:
    """`Unschedulable` and the like: the reason of a PodScheduled condition that is not true."""
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason"))
    return None


def _observe_container(status: Mapping[str, Any], pod: Mapping[str, Any]) -> ContainerObservation:
    state = status.get("state") or {}
    kind = next(iter(state), "waiting")
    detail = state.get(kind) or {}
    names: dict[str, ContainerState] = {"waiting": "Waiting", "running": "Running", "terminated": "Terminated"}
    ready = kind == "running" and status.get("ready", False)
    finished = detail.get("finishedAt")
    return ContainerObservation(
        name=status["name"],
        state="Ready" if ready else names[kind],
        reason=detail.get("reason"),
        message=detail.get("message", ""),
        exit_code=detail.get("exitCode"),
        restarts=status.get("restartCount", 0),
        finished_at=parse_time(finished) if finished else None,
        secrets=_secrets(pod, status["name"]) if detail.get("reason") == CONFIG_MISSING else (),
    )


def _secrets(pod: Mapping[str, Any], container: str) -> tuple[SecretUse, ...]:
    """What a container needs of Secrets, by its pod's spec."""
    specs = [*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())]
    variables = [v for spec in specs if spec["name"] == container for v in spec.get("env", ())]
    references = [(v["name"], (v.get("valueFrom") or {}).get("secretKeyRef")) for v in variables]
    return tuple(SecretUse(name, r["name"], r["key"]) for name, r in references if r and not r.get("optional"))
