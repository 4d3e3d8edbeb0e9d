"""Labels, annotations and owner of every child."""

from typing import Any

from rl_operator.api.names import API_VERSION, MANAGED_BY_LABEL, MANAGER, RUN_KIND, RUN_LABEL
from rl_operator.api.run import TrainingRun


def child_labels(run: TrainingRun, component: str) -> dict[str, str]:
    name = run.metadata.name
    return {
        "app.kubernetes.io/name": "rl-training-run",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "rl-operator",
        MANAGED_BY_LABEL: MANAGER,
        RUN_LABEL: name,
    }


def owner_reference(run: TrainingRun) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
