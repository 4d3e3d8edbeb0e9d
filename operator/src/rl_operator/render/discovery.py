"""The pod that reads the environments of an image: it prints them as JSON and ends. Restricted, without a token."""

import hashlib
import json
import posixpath
from dataclasses import dataclass
from typing import Final

from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime
from rl_operator.render.container_env_vars import SCRATCH
from rl_operator.render.container_template import CONFINED_POD, Image, confined_container, pod_security
from rl_operator.render.labels import managed_labels, owned_by
from rl_operator.render.pod import UNPRIVILEGED_ID, node_choice, pull_secrets

DISCOVERY_COMPONENT: Final = "discovery"
DISCOVERY_SELECTOR: Final = f"{names.MANAGED_BY_LABEL}={names.MANAGER},{names.COMPONENT_LABEL}={DISCOVERY_COMPONENT}"
CONTAINER: Final = "environments"
DEADLINE_SECONDS: Final = 600
"""From the pod's start on a node to its end, pulling the image included."""

COMMAND: Final = ("tinker-atropos", "environments", "-o", "json")
RESOURCES: Final[k8s.Resources] = {
    "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "16Mi"},
    "limits": {"memory": "512Mi", "ephemeral-storage": "64Mi"},
}


@dataclass(frozen=True)
class ImageReading:
    """An image to be read, and its owner. `chosen`: fields of the pod's spec that the platform or the author set."""

    namespace: str
    owner: k8s.OwnerReference
    image: str
    arguments: tuple[str, ...]
    chosen: k8s.PodSpec
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
    return ImageReading(
        namespace=namespace,
        owner={**owned_by(names.RUNTIME_KIND, runtime.metadata), "controller": True},
        image=spec.image_of_environments,
        arguments=(),
        chosen=pull_secrets(spec.image_pull_secrets) | node_choice(runtime),
        pull_policy=spec.image_pull_policy,
        rediscover=runtime.metadata.annotations.get(names.REDISCOVER_ANNOTATION, ""),
        trusted=True,
    )


def environment_reading(environment: Environment) -> ImageReading:
    """An RLEnvironment's image; read in its own namespace, where its pull secrets are."""
    image = environment.spec.image
    assert image is not None, "an environment without source code has an image"
    return ImageReading(
        namespace=environment.metadata.namespace,
        owner={**owned_by(names.ENVIRONMENT_KIND, environment.metadata), "controller": True},
        image=image.reference,
        arguments=_entry_arguments(image.entry),
        chosen=pull_secrets(image.pull_secrets),
        pull_policy=image.pull_policy,
        rediscover=environment.metadata.annotations.get(names.REDISCOVER_ANNOTATION, ""),
        trusted=False,
    )


def discovery_pod(reading: ImageReading, attempt: int) -> k8s.PodObject:
    """Attempt `attempt` (from 1) at reading an image."""
    image = Image(reading.image, reading.pull_policy)
    container: k8s.Container = {
        **confined_container(CONTAINER, image, (*COMMAND, *reading.arguments), RESOURCES),
        "workingDir": SCRATCH,
        "env": [{"name": "HOME", "value": SCRATCH}],
        "volumeMounts": [{"name": "tmp", "mountPath": SCRATCH}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"rl-discovery-{reading.key}-{attempt}",
            "namespace": reading.namespace,
            "labels": _labels() | {names.DISCOVERY_LABEL: reading.key, names.DISCOVERY_ATTEMPT_LABEL: str(attempt)},
            "ownerReferences": [reading.owner],
        },
        "spec": {
            **CONFINED_POD,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "securityContext": pod_security(UNPRIVILEGED_ID),
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "32Mi"}}],
            **reading.chosen,
        },
    }


def discovery_policy(reading: ImageReading) -> k8s.NetworkPolicyObject:
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
    return managed_labels("rl-discovery", DISCOVERY_COMPONENT)


def _entry_arguments(entry: str) -> tuple[str, ...]:
    """A path names one file; a name is looked up among the image's environments."""
    folder, name = posixpath.split(entry)
    return ("--path", folder, "--entry", name) if posixpath.isabs(entry) else ()
