"""What every Service and NetworkPolicy of a run has in common."""

from typing import Any

from rl_operator.api.run import TrainingRun
from rl_operator.render.labels import child_labels, owner_reference


def service_name(run: TrainingRun) -> str:
    return f"{run.metadata.name}-{run.metadata.uid[:5]}"


def network_child(run: TrainingRun, api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": run.metadata.namespace,
            "labels": child_labels(run, "network"),
            "ownerReferences": [owner_reference(run)],
        },
    }


def network_policy(run: TrainingRun, component: str, spec: dict[str, Any]) -> dict[str, Any]:
    name = f"{service_name(run)}-{component}"
    return network_child(run, "networking.k8s.io/v1", "NetworkPolicy", name) | {"spec": spec}


def tcp_ports(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
