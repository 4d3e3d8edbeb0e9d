"""The pod that reads the environments of an image: it prints them as JSON and ends. Restricted, without a token."""

import hashlib
import json
import posixpath
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.environment import Environment
from rl_operator.api.model import ObjectMeta
from rl_operator.api.names import (
    API_VERSION,
    COMPONENT_LABEL,
    DISCOVERY_ATTEMPT_LABEL,
    DISCOVERY_LABEL,
    ENVIRONMENT_KIND,
    MANAGED_BY_LABEL,
    MANAGER,
    REDISCOVER_ANNOTATION,
    RUNTIME_KIND,
)
from rl_operator.api.runtime import Runtime
from rl_operator.render.container_template import literal
from rl_operator.render.pod import UNPRIVILEGED_ID

DISCOVERY_COMPONENT: Final = "discovery"
DISCOVERY_SELECTOR: Final = f"{MANAGED_BY_LABEL}={MANAGER},{COMPONENT_LABEL}={DISCOVERY_COMPONENT}"
CONTAINER: Final = "environments"
DEADLINE_SECONDS: Final = 600
"""From the pod's start on a node to its end, pulling the image included."""

COMMAND: Final = ("tinker-atropos", "environments", "-o", "json")
RESOURCES: Final = {
    "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "16Mi"},
    "limits": {"memory": "512Mi", "ephemeral-storage": "64Mi"},
}


@dataclass(frozen=True)
class ImageReading:
    """An image to be read, and its owner. `chosen`: fields of the pod's spec that the platform or the author set."""

    namespace: str
    owner: dict[str, Any]
    image: str
    arguments: tuple[str, ...]
    chosen: dict[str, Any]
    pull_policy: str | None
    rediscover: str
    trusted: bool
    """Whether the platform chose the image. Other images get no network."""

    @property
    def key(self) -> str:
        """10 hex digits of what is read and how: another image, entry or request makes it another reading."""
        content = [self.image, self.arguments, self.chosen, self.pull_policy, self.rediscover]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def runtime_reading(runtime: Runtime, namespace: str) -> ImageReading:
    """The image of a runtime's environments; read in the operator's namespace, on the nodes that its runs use."""
    spec = runtime.spec
    chosen = {
        "imagePullSecrets": [reference.to_wire() for reference in spec.image_pull_secrets],
        "nodeSelector": spec.node_selector,
        "tolerations": [toleration.to_wire() for toleration in spec.tolerations],
        "runtimeClassName": spec.runtime_class_name,
    }
    return ImageReading(
        namespace=namespace,
        owner=_owner(RUNTIME_KIND, runtime.metadata),
        image=spec.image_of_environments,
        arguments=(),
        chosen={name: value for name, value in chosen.items() if value},
        pull_policy=spec.image_pull_policy,
        rediscover=runtime.metadata.annotations.get(REDISCOVER_ANNOTATION, ""),
        trusted=True,
    )


def environment_reading(environment: Environment) -> ImageReading:
    """An RLEnvironment's image; read in its own namespace, where its pull secrets are."""
    image = environment.spec.image
    assert image is not None, "an environment without source code has an image"
    secrets = [reference.to_wire() for reference in image.pull_secrets]
    return ImageReading(
        namespace=environment.metadata.namespace,
        owner=_owner(ENVIRONMENT_KIND, environment.metadata),
        image=image.reference,
        arguments=_entry_arguments(image.entry),
        chosen={"imagePullSecrets": secrets} if secrets else {},
        pull_policy=image.pull_policy,
        rediscover=environment.metadata.annotations.get(REDISCOVER_ANNOTATION, ""),
        trusted=False,
    )


def discovery_pod(reading: ImageReading, attempt: int) -> dict[str, Any]:
    """Attempt `attempt` (from 1) at reading an image."""
    container = {
        "name": CONTAINER,
        "image": reading.image,
        "command": [*COMMAND, *literal(reading.arguments)],
        "workingDir": "/tmp",  # noqa: S108 -- an emptyDir of the pod's own
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 -- the same
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 -- the same
    }
    policy = {"imagePullPolicy": reading.pull_policy} if reading.pull_policy else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"rl-discovery-{reading.key}-{attempt}",
            "namespace": reading.namespace,
            "labels": _labels() | {DISCOVERY_LABEL: reading.key, DISCOVERY_ATTEMPT_LABEL: str(attempt)},
            "ownerReferences": [reading.owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UNPRIVILEGED_ID,
                "runAsGroup": UNPRIVILEGED_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container | policy],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "32Mi"}}],
            **reading.chosen,
        },
    }


def discovery_policy(reading: ImageReading) -> dict[str, Any]:
    """No connection to or from the namespace's discovery pods. One per owner, deleted together with it."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"rl-discovery-{reading.owner['uid']}",
            "namespace": reading.namespace,
            "labels": _labels(),
            "ownerReferences": [reading.owner],
        },
        "spec": {"podSelector": {"matchLabels": _labels()}, "policyTypes": ["Ingress", "Egress"]},
    }


def _labels() -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "rl-discovery",
        COMPONENT_LABEL: DISCOVERY_COMPONENT,
        "app.kubernetes.io/part-of": "rl-operator",
        MANAGED_BY_LABEL: MANAGER,
    }


def _entry_arguments(entry: str) -> tuple[str, ...]:
    """A path names one file; a name is looked up among the image's environments."""
    folder, name = posixpath.split(entry)
    return ("--path", folder, "--entry", name) if posixpath.isabs(entry) else ()


def _owner(kind: str, metadata: ObjectMeta) -> dict[str, Any]:
    # Without blockOwnerDeletion, which would need permission for the owner's finalizers.
    return {"apiVersion": API_VERSION, "kind": kind, "name": metadata.name, "uid": metadata.uid, "controller": True}
