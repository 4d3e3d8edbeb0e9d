"""One of our containers, and what all pods share: folders, volumes, security."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rl_contract.env_vars import RL_CONFIG_SHA256
from rl_contract.processes import OPS_PORTS
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.api.runtime import Runtime
from rl_operator.api.spec_parts.container_resources import ResourceRequirements
from rl_operator.render.container_env_vars import SCRATCH, literals

CONFIG_FOLDER: Final = "/etc/rl"
CONFIG_KEY: Final = "config.yaml"
CONFIG_FILE: Final = f"{CONFIG_FOLDER}/{CONFIG_KEY}"
CONFIG_MOUNT: Final[k8s.VolumeMount] = {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}

DEFAULT_RESOURCES: Final[Mapping[str, k8s.Resources]] = {
    API_CONTAINER: {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    TRAINER_CONTAINER: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
    ENVIRONMENT_CONTAINER: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
}


EPHEMERAL: Final = "ephemeral-storage"
DEFAULT_STORAGE: Final[Mapping[str, str]] = {
    API_CONTAINER: "4Gi",  # a journal of up to 2 GiB, its write-ahead log and what is being freed
    TRAINER_CONTAINER: "4Gi",
    ENVIRONMENT_CONTAINER: "8Gi",  # data sets are unpacked in its scratch folder
}
NO_DNS: Final[k8s.PodSpec] = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
"""Of a pod: a resolver that refuses at once. Without any, a look-up would wait for minutes."""

CONFINED_POD: Final[k8s.PodSpec] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}
"""Of every pod: it ends once, cannot speak to the API server, and is not told of the namespace's Services."""

CONTAINER_SECURITY: Final[k8s.ContainerSecurity] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

SMALL_RESOURCES: Final[k8s.Resources] = {
    "requests": {"cpu": "50m", "memory": "128Mi", EPHEMERAL: "16Mi"},
    "limits": {"memory": "512Mi", EPHEMERAL: "64Mi"},
}
"""Of what only passes on, or holds one file at a time."""

STORAGE_REQUEST: Final = "256Mi"
"""Without a request the scheduler would reserve the whole limit."""


@dataclass(frozen=True, slots=True)
class Image:
    """`pull_policy` None: Kubernetes' default for the reference."""

    reference: str
    pull_policy: str | None

    @property
    def policy(self) -> k8s.Container:
        """Of a container that runs it."""
        return {"imagePullPolicy": self.pull_policy} if self.pull_policy else {}


def runtime_image(runtime: Runtime) -> Image:
    return Image(runtime.spec.image, runtime.spec.image_pull_policy)


def runtime_environment_image(runtime: Runtime) -> Image:
    return Image(runtime.spec.image_of_environments, runtime.spec.image_pull_policy)


def written_resources(resources: ResourceRequirements) -> k8s.Resources:
    return {"requests": dict(resources.requests), "limits": dict(resources.limits)}


def runtime_resources(runtime: Runtime, name: str) -> k8s.Resources:
    """The runtime's resources for the container, else the defaults."""
    resources: ResourceRequirements = getattr(runtime.spec.resources, name)
    return written_resources(resources) if resources != ResourceRequirements() else dict(DEFAULT_RESOURCES[name])


def bounded_resources(runtime: Runtime, name: str) -> k8s.Resources:
    """The same for a container of the run's pod: never without a limit on what it may write to the node's disk."""
    return limited(runtime_resources(runtime, name), {EPHEMERAL: DEFAULT_STORAGE[name]}, {EPHEMERAL: STORAGE_REQUEST})


def limited(resources: k8s.Resources, most: Mapping[str, str], least: Mapping[str, str]) -> k8s.Resources:
    """Never without a limit on each resource of `most`: what is requested of it, else the default. Where only the
    default says something of a resource of `least`, that is its request.
    """
    requests, limits = dict(resources.get("requests", {})), dict(resources.get("limits", {}))
    for name, default in most.items():
        if name not in limits:
            limits[name] = requests.get(name, default)
            requests |= {name: least[name]} if name in least and name not in requests else {}
    return {"requests": requests, "limits": limits}


def folder(name: str, resources: k8s.Resources) -> k8s.Volume:
    """A volume that is deleted with the pod, and may take what its container may."""
    return {"name": name, "emptyDir": {"sizeLimit": resources["limits"][EPHEMERAL]}}


def container(
    name: str,
    image: Image,
    command: list[str],
    env_vars: list[k8s.EnvVar],
    *,
    resources: k8s.Resources,
    mounts: list[k8s.VolumeMount],
) -> k8s.Container:
    """One of the three of a run."""
    return {
        **confined_container(name, image, command, resources),
        "workingDir": SCRATCH,
        "env": env_vars,
        "ports": [{"name": f"{name}-ops", "containerPort": OPS_PORTS[name]}],
        "readinessProbe": probe(name, period_seconds=2, failure_threshold=3),
        "volumeMounts": [{"name": scratch_volume(name), "mountPath": SCRATCH}, *mounts],
    }


def confined_container(name: str, image: Image, command: Iterable[str], resources: k8s.Resources) -> k8s.Container:
    """What all of ours have: as the pod security standard `restricted` requires, no writing to the image's files, and
    a message at their end: the trainer's result, why another one failed, or else the last lines of the log.
    """
    rendered: k8s.Container = {
        "name": name,
        "image": image.reference,
        "command": literal(command),
        "resources": resources,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return rendered | image.policy


def literal(command: Iterable[str]) -> list[str]:
    """The arguments unchanged: the kubelet would expand `$(NAME)` in them."""
    return [word.replace("$", "$$") for word in command]


PROBE_SECONDS: Final = 5
"""Longer than a process on a busy node takes to answer: one second would make healthy containers unready."""


def probe(name: str, period_seconds: int, failure_threshold: int) -> k8s.ContainerProbe:
    return {
        "httpGet": {"path": "/healthz", "port": OPS_PORTS[name]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": PROBE_SECONDS,
        "failureThreshold": failure_threshold,
    }


def pod_security(unprivileged_id: int) -> k8s.PodSecurity:
    """What the pod security standard `restricted` requires of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": unprivileged_id,
        "runAsGroup": unprivileged_id,
        "fsGroup": unprivileged_id,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def mounting(template: k8s.PodObject, config_map: str, config: str) -> k8s.PodObject:
    """The pod with the volume that it takes its config from. A template is without it: the ConfigMap that holds the
    template is named by its content. Who mounts it is told the hash of the config file: the kubelet reads the ConfigMap
    later than we do.
    """
    spec, told = template["spec"], literals({RL_CONFIG_SHA256: hashlib.sha256(config.encode()).hexdigest()})
    containers: list[k8s.Container] = [
        {**each, "env": [*each["env"], *told]} if CONFIG_MOUNT in each.get("volumeMounts", []) else each
        for each in spec["containers"]
    ]
    items: list[k8s.KeyToPath] = [{"key": CONFIG_KEY, "path": CONFIG_KEY}]
    volume: k8s.Volume = {"name": "config", "configMap": {"name": config_map, "items": items}}
    return {**template, "spec": {**spec, "containers": containers, "volumes": [volume, *spec["volumes"]]}}


def scratch_volume(name: str) -> str:
    return f"{name}-tmp"
