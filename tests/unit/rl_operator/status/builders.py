"""Runs and pods as values, for the pure status code. Pods are built in Kubernetes' own shape and observed as such."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rl_operator.api.names import (
    API_VERSION,
    ATTEMPT_LABEL,
    COMPONENT_LABEL,
    ENVIRONMENT_COMPONENT,
    INCARNATION_LABEL,
    POD_FINALIZER,
    RUN_KIND,
    SANDBOX_COMPONENT,
    SLOT_LABEL,
)
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import derive
from rl_operator.status.observed.observation import PodObservation, observe_pod
from rl_operator.status.phase_and_action import assess

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-05-01T11:50:00Z"
ENDED = "2026-05-01T11:59:30Z"
POD = "sorting-u1abc-1"

STARTED: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Starting",
    "startTime": CREATED,
    "attempt": 1,
    "podName": POD,
    "configMapName": "sorting-0a1b2c3d",
    "configHash": "0a1b2c3d",
    "conditions": [
        {
            "type": "Reconciling",
            "status": "True",
            "reason": "PodStarting",
            "message": f"Creating pod {POD}.",
            "lastTransitionTime": CREATED,
        }
    ],
}
RUNNING: dict[str, Any] = {
    **STARTED,
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Training", "message": "Training.", "lastTransitionTime": CREATED}
    ],
}

Container = dict[str, Any]


def ready() -> Container:
    return {"state": {"running": {"startedAt": CREATED}}, "ready": True, "restartCount": 0}


def running() -> Container:
    return {**ready(), "ready": False}


def waiting(reason: str = "PodInitializing", message: str = "") -> Container:
    return {"state": {"waiting": {"reason": reason, "message": message}}, "ready": False, "restartCount": 0}


def terminated(code: int, message: str = "", reason: str | None = None, at: str = ENDED) -> Container:
    word = reason or ("Completed" if code == 0 else "Error")
    detail = {"exitCode": code, "reason": word, "finishedAt": at, "message": message}
    return {"state": {"terminated": detail}, "ready": False, "restartCount": 0}


def result(**changes: Any) -> str:
    """A trainer's termination message; succeeded unless changed."""
    complete = {
        "schema": 1,
        "outcome": "succeeded",
        "attempt": 1,
        "stepsTrained": 40,
        "totalSteps": 40,
        "statePath": "tinker://m/weights/end",
        "samplerPath": "tinker://m/sampler_weights/end",
        "metrics": {"rolloutReward": 0.91, "heldOut": {"value": 0.93}},
    }
    return json.dumps({**complete, **changes})


def failed_result(error_class: str, message: str, **changes: Any) -> str:
    error = {"class": error_class, "message": message}
    return result(outcome="failed", stepsTrained=7, samplerPath=None, error=error, **changes)


def make_pod(
    api: Container,
    trainer: Container,
    environment: Container | None = None,
    *,
    phase: str = "Running",
    deleting: bool = False,
    delete_by: str = ENDED,
    grace: int = 0,
    node: str = "n1",
    labels: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> PodObservation:
    metadata: dict[str, Any] = {
        "name": POD,
        "namespace": "team-a",
        "uid": "p-1",
        "creationTimestamp": CREATED,
        "labels": {ATTEMPT_LABEL: "1"} | (labels or {}),
        "finalizers": [POD_FINALIZER],
        "ownerReferences": [{"controller": True, "uid": "u-1", "name": "sorting"}],
    }
    if deleting:
        metadata |= {"deletionTimestamp": delete_by, "deletionGracePeriodSeconds": grace}
    inside = [{"name": "environment", **environment}] if environment else []
    pod: Any = {
        "metadata": metadata,
        "spec": {**(spec or {}), **({"nodeName": node} if node else {})},
        "status": {
            "phase": phase,
            "initContainerStatuses": [{"name": "api", **api}],
            "containerStatuses": [{"name": "trainer", **trainer}, *inside],
            **status,
        },
    }
    return observe_pod(pod)


def working_pod(**changes: Any) -> PodObservation:
    """All of its containers are ready."""
    return make_pod(ready(), ready(), ready(), **changes)


def ended_pod(trainer: Container, environment: Container | None = None, **changes: Any) -> PodObservation:
    """A pod that Kubernetes calls failed, whose trainer ended so; by default the environment ended in order."""
    return make_pod(ready(), trainer, environment or terminated(0), **{"phase": "Failed", **changes})


TRAINING = working_pod()


def unscheduled(reason: str, message: str = "") -> dict[str, Any]:
    """The scheduler's condition."""
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


def unscheduled_pod(reason: str, message: str = "", **changes: Any) -> PodObservation:
    """It waits for the scheduler, or for its gate."""
    pending: dict[str, Any] = {"phase": "Pending", "node": "", "conditions": [unscheduled(reason, message)]}
    return make_pod(waiting(), waiting(), waiting(), **pending, **changes)


def disruption(reason: str, message: str = "") -> dict[str, Any]:
    """The condition of a pod that the cluster ends."""
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


def make_environment(slot: int, incarnation: int, container: Container, **changes: Any) -> PodObservation:
    """An environment pod."""
    return _apart(ENVIRONMENT_COMPONENT, "env", slot, incarnation, {"environment": container}, **changes)


def make_sandbox(slot: int, incarnation: int, container: Container, **changes: Any) -> PodObservation:
    """A sandbox pod."""
    return _apart(SANDBOX_COMPONENT, "sandbox", slot, incarnation, {"sandbox": container}, **changes)


def _apart(
    component: str,
    word: str,
    slot: int,
    incarnation: int,
    containers: dict[str, Container],
    *,
    phase: str = "Running",
    attempt: int = 1,
    deleting: bool = False,
    **status: Any,
) -> PodObservation:
    labels = {
        ATTEMPT_LABEL: str(attempt),
        COMPONENT_LABEL: component,
        SLOT_LABEL: str(slot),
        INCARNATION_LABEL: str(incarnation),
    }
    metadata: dict[str, Any] = {
        "name": f"sorting-u1abc-{attempt}-{word}-{slot}-{incarnation}",
        "namespace": "team-a",
        "uid": f"{word}-{attempt}-{slot}-{incarnation}",
        "creationTimestamp": CREATED,
        "labels": labels,
        "ownerReferences": [{"controller": True, "uid": "u-1", "name": "sorting"}],
    }
    if deleting:
        metadata["deletionTimestamp"] = ENDED
    statuses = [{"name": name, **container} for name, container in containers.items()]
    pod: Any = {
        "metadata": metadata,
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }
    return observe_pod(pod)


def make_run(status: dict[str, Any] | None = None, **spec: Any) -> TrainingRun:
    return TrainingRun.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": RUN_KIND,
            "metadata": {"name": "sorting", "namespace": "team-a", "uid": "u-1", "generation": 1},
            "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
            "status": status or {},
        }
    )


def make_view(
    status: dict[str, Any] | None = None,
    *,
    pod: PodObservation | None = None,
    now: datetime = NOW,
    spec: dict[str, Any] | None = None,
    **rest: Any,
) -> View:
    return View(make_run(status, **(spec or {})), now, 10.0, pod, **rest)


def status_of(view: View) -> RunStatus:
    """What a reconcile would write."""
    return derive(view, assess(view))


def written(view: View, **changes: Any) -> View:
    """The view once that is written."""
    return replace(view, run=view.run.with_changes(status=status_of(view)), **changes)
