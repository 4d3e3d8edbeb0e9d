"""Labels, annotations and owner of every child, and what ConfigMaps and Jobs are made of."""

from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.model import ObjectMeta
from rl_operator.api.training_run import TrainingRun


def controller_uid(document: k8s.KubernetesObject) -> str | None:
    owners = document["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def config_map_of(
    metadata: k8s.ManifestMetadata, data: dict[str, str], *, immutable: bool = False
) -> k8s.ConfigMapObject:
    made: k8s.ConfigMapObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return made | {"immutable": True} if immutable else made


def job_of(
    metadata: k8s.ManifestMetadata, template: k8s.PodTemplate, *, limit_seconds: int, ttl_seconds: int
) -> k8s.JobObject:
    """Of a run's user: it is tried once, and goes with its run."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": limit_seconds,
            "ttlSecondsAfterFinished": ttl_seconds,
            "template": template,
        },
    }


def managed_labels(name: str, component: str) -> dict[str, str]:
    """Of what the operator manages."""
    return {
        "app.kubernetes.io/name": name,
        names.COMPONENT_LABEL: component,
        "app.kubernetes.io/part-of": "rl-operator",
        names.MANAGED_BY_LABEL: names.MANAGER,
    }


def child_labels(run: TrainingRun, component: str) -> dict[str, str]:
    name = run.metadata.name
    own = {"app.kubernetes.io/instance": name, names.RUN_LABEL: name}
    return managed_labels("rl-training-run", component) | own


def child_metadata(run: TrainingRun, name: str, component: str) -> k8s.ManifestMetadata:
    """Of a child that is not a pod."""
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": child_labels(run, component),
        "ownerReferences": [owner_reference(run)],
    }


def pod_labels(run: TrainingRun, component: str) -> dict[str, str]:
    """For a pod: the uid tells the pods of a run from those of a deleted run with the same name."""
    return child_labels(run, component) | {names.RUN_UID_LABEL: run.metadata.uid}


def helper_labels(run: TrainingRun, name: str, label: str, value: str) -> dict[str, str]:
    """Of what serves a run's user and is none of its children, which the operator manages."""
    return {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": run.metadata.name,
        "app.kubernetes.io/part-of": "rl-operator",
        label: value,
    }


def queue_labels(run: TrainingRun) -> dict[str, str]:
    """Kueue's label, if the run has it: that queue then decides when the pod is scheduled. A runtime's own wins."""
    queue = run.metadata.labels.get(names.QUEUE_NAME_LABEL)
    return {names.QUEUE_NAME_LABEL: queue} if queue else {}


def pods_of_component(run: TrainingRun, component: str) -> k8s.PodSelector:
    """A label selector. A user who may create pods in the namespace can give any pod these labels: a namespace is one
    trust domain, and such a user may read its Secrets, too. Environments cannot: they have no token.
    """
    return {
        "matchLabels": {
            names.RUN_LABEL: run.metadata.name,
            names.COMPONENT_LABEL: component,
            names.RUN_UID_LABEL: run.metadata.uid,
        }
    }


def owner_reference(run: TrainingRun) -> k8s.OwnerReference:
    return {**owned_by(names.RUN_KIND, run.metadata), "controller": True, "blockOwnerDeletion": True}


def owned_by(kind: str, metadata: ObjectMeta) -> k8s.OwnerReference:
    """Without blockOwnerDeletion, which would need permission for the owner's finalizers."""
    return {"apiVersion": names.API_VERSION, "kind": kind, "name": metadata.name, "uid": metadata.uid}
