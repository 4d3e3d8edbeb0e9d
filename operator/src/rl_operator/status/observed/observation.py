"""What is observed about a run's children: small, frozen, projected from what Kubernetes and the trainer report."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import ValidationError, field_validator

from rl_contract.env_vars import RL_OPS_TOKEN
from rl_contract.trainer_messages import Pause, TrainerResult, TrainerStatus
from rl_operator.api.kubernetes_objects import (
    Container,
    ContainerStateObject,
    ContainerStatusObject,
    ManifestMetadata,
    ObjectCondition,
    OwnerReference,
    PodObject,
    PodStatus,
    TerminatedState,
    WaitingState,
)
from rl_operator.api.names import (
    API_CONTAINER,
    ATTEMPT_LABEL,
    COMPONENT_LABEL,
    CONTAINERS,
    INCARNATION_LABEL,
    OPENENV_CONTAINER,
    OUR_CONTAINERS,
    POD_FINALIZER,
    QUEUE_NAME_LABEL,
    RUN_LABEL,
    RUN_UID_LABEL,
    RUNTIME_ANNOTATION,
    SLOT_LABEL,
    TRAINER_CONTAINER,
    TRAINING_COMPONENT,
)
from rl_operator.status.text.sentences import clean, meant, sentence

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
    yield from pod.get("spec", {}).get("initContainers", ())
    yield from pod.get("spec", {}).get("containers", ())


class ObservedTrainer(TrainerStatus):
    """The trainer's `/status`, as far as it can be shown."""

    @field_validator("waiting", "warnings")
    @classmethod
    def _as_sentences(cls, said: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        return tuple(map(sentence, said)) if isinstance(said, tuple) else said and sentence(said)

    @field_validator("pause")
    @classmethod
    def _in_one_line(cls, said: Pause | None) -> Pause | None:
        return said and said.with_changes(reason=clean(said.reason))

    @field_validator("last_step_at", "resumed_at")
    @classmethod
    def _is_a_moment(cls, text: str | None) -> str | None:
        """Deadlines compare it: a response with an invalid time, or one without a time zone, is rejected."""
        if text is not None and parse_time(text).tzinfo is None:
            raise ValueError("has no time zone")
        return text


@dataclass(frozen=True, slots=True)
class PodObservation:
    """One attempt's pod.

    `over` means that no regular container runs anymore, or ever will, as far as is known; `delete_by` is when it should
    be gone, its grace period included, `deleted_at` when deletion was requested.
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
    delete_by: datetime | None
    finalizers: tuple[str, ...]
    node: str | None
    disruption: str | None
    component: str = TRAINING_COMPONENT
    """training: the run's own pod; environment: a pod of an environment that runs separately."""

    slot: int = 0
    incarnation: int = 0
    lost: bool = False
    """It should have been gone long ago, and its end was never reported (`status/attempt/pod_cleanup.py`)."""

    unprepared_since: datetime | None = None
    """Since when its node has failed to mount its volumes or to set up its network."""

    mounts: tuple[str, ...] = ()
    """The ConfigMaps, Secrets and claims among its volumes: only while it is not prepared."""

    deleted_at: datetime | None = None
    unready_since: datetime | None = None
    """When its probes last began to fail."""

    queue: str | None = None
    """Kueue's queue name, from its label: the run's, or the runtime's own."""

    gates: tuple[str, ...] = ()
    """The names of its scheduling gates. They become fewer, never more."""

    scheduled_at: datetime | None = None
    """When the scheduler found a node for it."""

    made_for: tuple[str, str] = ("", "")
    """Name and uid of its run by its labels, which stay when it is orphaned."""

    runtime: str = ""
    """Of a run's own pod: where it takes a slot."""

    ops_token: str = field(default="", repr=False)
    """What its trainer's ops port asks for."""

    def container(self, name: str) -> ContainerObservation | None:
        return next((c for c in self.containers if c.name == name), None)

    @property
    def held(self) -> bool:
        """Whether our finalizer is on it."""
        return POD_FINALIZER in self.finalizers

    @property
    def deleting(self) -> bool:
        return self.delete_by is not None

    @property
    def left_to_others(self) -> bool:
        """All of our containers have ended, and one that others put into the pod has not, and may never."""
        ours = [c for c in self.containers if c.name in OUR_CONTAINERS - {API_CONTAINER, OPENENV_CONTAINER}]
        others = any(c.name not in OUR_CONTAINERS and c.state != "Terminated" for c in self.containers)
        return others and bool(ours) and all(c.state == "Terminated" for c in ours)

    @property
    def over(self) -> bool:
        return (
            self.left_to_others
            or self.phase in ("Succeeded", "Failed")
            or self.lost
            or (self.deleting and self.node is None)
        )


def observe_pod(pod: PodObject) -> PodObservation:
    """Project a pod's manifest (as the API server or the local target holds it) to what status needs."""
    metadata, labels = pod["metadata"], pod["metadata"].get("labels", {})
    status: PodStatus = pod.get("status") or {}
    owner = next((o for o in metadata.get("ownerReferences", []) if o.get("controller")), OwnerReference())
    statuses = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    trainer = next((s for s in statuses if s["name"] == TRAINER_CONTAINER), ContainerStatusObject())
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    disruption, delete_by = _disruption(conditions), metadata.get("deletionTimestamp")
    node, unprepared = pod.get("spec", {}).get("nodeName"), _since(conditions, "PodReadyToStartContainers", "False")
    return PodObservation(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata.get("uid", ""),
        run_uid=owner.get("uid", ""),
        run_name=owner.get("name", ""),
        attempt=int(labels.get(ATTEMPT_LABEL, "1")),
        created=parse_time(metadata["creationTimestamp"]),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or _scheduling_reason(conditions),
        message=status.get("message") or _said(conditions),
        containers=tuple(observe_container(s, pod) for s in sorted(statuses, key=_place)),
        result=parse_result(trainer.get("state", {}).get("terminated", {}).get("message", "")),
        address=status.get("podIP"),
        delete_by=parse_time(delete_by) if delete_by else None,
        deleted_at=_deleted_at(metadata),
        finalizers=tuple(metadata.get("finalizers", ())),
        node=node or None,
        disruption=disruption["reason"] if disruption and disruption["status"] == "True" else None,
        component=labels.get(COMPONENT_LABEL, TRAINING_COMPONENT),
        slot=int(labels.get(SLOT_LABEL, "0")),
        incarnation=int(labels.get(INCARNATION_LABEL, "0")),
        unprepared_since=unprepared if node else None,
        scheduled_at=_since(conditions, "PodScheduled", "True"),
        mounts=_mounts(pod) if node and unprepared else (),
        unready_since=_since(conditions, "ContainersReady", "False"),
        queue=labels.get(QUEUE_NAME_LABEL),
        gates=tuple(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", ())),
        made_for=(labels.get(RUN_LABEL, ""), labels.get(RUN_UID_LABEL, "")),
        runtime=metadata.get("annotations", {}).get(RUNTIME_ANNOTATION, ""),
        ops_token=ops_token_of(pod),
    )


def ops_token_of(pod: PodObject) -> str:
    """What the ops port of the pod asks for; empty: nothing. It is in the pod's spec only, so that whoever may read the
    pod may ask it.
    """
    variables = (variable for spec in _specs(pod) for variable in spec.get("env") or ())
    return next((v.get("value", "") for v in variables if v["name"] == RL_OPS_TOKEN), "")


def _disruption(conditions: Mapping[str, ObjectCondition]) -> ObjectCondition | None:
    """Kubernetes' condition, or the one that Kueue sets on a pod before it deletes it."""
    return conditions.get("DisruptionTarget") or conditions.get("TerminationTarget")


def _deleted_at(metadata: ManifestMetadata) -> datetime | None:
    """When the deletion was requested: Kubernetes records when its grace period ends."""
    if "deletionTimestamp" not in metadata:
        return None
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return parse_time(metadata["deletionTimestamp"]) - grace


def parse_result(message: str) -> TrainerResult | None:
    """Read a termination message; None if it is not a result of ours (e.g. the last lines of a log)."""
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


def _place(status: ContainerStatusObject) -> int:
    """Containers in their usual order; the kubelet sorts by name."""
    name = status["name"]
    return CONTAINERS.index(name) if name in CONTAINERS else len(CONTAINERS)


def _scheduling_reason(conditions: Mapping[str, ObjectCondition]) -> str | None:
    """`Unschedulable` and the like: the reason of a PodScheduled condition that is not true."""
    scheduled = conditions.get("PodScheduled")
    return str(scheduled.get("reason")) if scheduled and scheduled["status"] == "False" else None


def _said(conditions: Mapping[str, ObjectCondition]) -> str:
    """Why the pod is disrupted, or why no node accepts it: the explanation is in the condition."""
    found = (_disruption(conditions), conditions.get("PodScheduled"))
    return next((str(c["message"]) for c in found if c and c.get("message")), "")


def _since(conditions: Mapping[str, ObjectCondition], type_: str, value: str) -> datetime | None:
    """Since when a condition has that value; None: it has another one, or is missing."""
    found = conditions.get(type_)
    moment = found.get("lastTransitionTime") if found and found["status"] == value else None
    return parse_time(moment) if moment else None


def _mounts(pod: PodObject) -> tuple[str, ...]:
    volumes = pod["spec"].get("volumes", ())
    config_maps = [f"ConfigMap {volume['configMap']['name']}" for volume in volumes if "configMap" in volume]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
    return (
        *config_maps,
        *(f"Secret {volume['secret']['secretName']}" for volume in volumes if "secret" in volume),
        *(f"PersistentVolumeClaim {claim}" for claim in claims),
    )
