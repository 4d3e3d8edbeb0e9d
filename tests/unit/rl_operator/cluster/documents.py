"""Objects as the API server gives them."""

from typing import Any

from tests.unit.rl_operator import samples

from rl_operator.api.names import ATTEMPT_LABEL, POD_FINALIZER, RUN_LABEL

POD_NAME = f"sorting-{samples.UID[:5]}-1"


def run_document(version: int = 1, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    document = samples.run_document(**spec)
    document["metadata"]["resourceVersion"] = str(version)
    return document | {"status": status or {}}


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
