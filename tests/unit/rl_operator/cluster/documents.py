"""Objects as the API server gives them."""

from typing import Any

from tests.unit.rl_operator import samples

from rl_operator.api.names import ATTEMPT_LABEL, POD_FINALIZER, RUN_LABEL
from rl_operator.status.final_status import ROWS
from rl_operator.status.text.phase_table import conditions_of

POD_NAME = f"sorting-{samples.UID[:5]}-1"


def run_document(version: int = 1, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    document = samples.run_document(**spec)
    document["metadata"]["resourceVersion"] = str(version)
    return document | {"status": status or {}}


def finished_status(phase: str, **more: Any) -> dict[str, Any]:
    """As the operator wrote it."""
    reason = "Succeeded" if phase == "Succeeded" else "TrainerFailed"
    failure = {} if phase == "Succeeded" else {"failure": {"reason": reason}}
    message, now = f"{reason}.", "2026-01-01T00:00:00Z"
    conditions = conditions_of(ROWS[phase].conditions, (), reason, message, generation=1, now=now)
    wire = [each.to_wire() for each in conditions]
    return {"phase": phase, "message": message, "conditions": wire, **failure, **more}


def runtime_document(version: int = 1, name: str = "tiny", **spec: Any) -> dict[str, Any]:
    document = samples.TINY.to_wire()
    document["metadata"] = {"name": name, "uid": name, "resourceVersion": str(version), "generation": 1}
    document["spec"] |= spec
    return document


def environment_document(version: int = 1, name: str = "maze", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": name,
            "resourceVersion": str(version),
            "generation": 1,
        },
        "spec": spec or {"source": {"configMap": {"name": name}}},
    }


def pod_document(version: int = 1, finalizers: list[str] | None = None, owner: str = samples.UID) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": POD_NAME,
            "namespace": "team-a",
            "uid": "pod-uid",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {RUN_LABEL: "sorting", ATTEMPT_LABEL: "1"},
            "finalizers": [POD_FINALIZER] if finalizers is None else finalizers,
            "ownerReferences": [{"name": "sorting", "uid": owner, "controller": True}],
        },
        "spec": {},
        "status": {"phase": "Pending"},
    }
