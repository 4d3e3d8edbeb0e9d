"""The pod of a sandbox: the tool server in any image, for the commands of an agent, which may be hostile.

It gets no token, no key, no DNS and no way out; it is reached only from its run's environments (`sandbox_network.py`).
The server brings its interpreter along (`tinker_atropos/sandboxes/portable_python.py`): an init container copies it
from the runtime's image.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from rl_contract.processes import SANDBOX_PORT
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.names import SANDBOX_COMPONENT, SANDBOX_CONTAINER
from rl_operator.api.run_inputs import RunInputs, rollout_seconds
from rl_operator.api.spec_parts.container_resources import parse_quantity
from rl_operator.api.spec_parts.sandboxes import RunSandboxes, RuntimeSandboxes, sandbox_resources, sandbox_seconds
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import SCRATCH
from rl_operator.render.container_template import (
    CONFINED_POD,
    EPHEMERAL,
    NO_DNS,
    Image,
    confined_container,
    folder,
    pod_security,
    runtime_image,
    written_resources,
)
from rl_operator.render.pod import owned_template, placement, pod_of_slot, pull_secrets

SANDBOX_GROUP: Final = 65531
FIRST_USER, USERS = 100_000, 1_000_000
"""Each pod has a user id of its own: the kernel counts processes by user on the whole node, and one sandbox that starts
too many must not keep others from starting any.
"""

TOOLS_FOLDER: Final = "/rl-tools"
TOOLS_IN_IMAGE: Final = "/opt/rl-tools"
AGENT_FOLDER: Final = f"{SCRATCH}/agent"

GRACE_SECONDS: Final = 5
"""The server ends everything at once."""

SERVER_MB: Final = 48
"""What the server itself needs of the memory limit, in MiB: commands are ended before the kernel ends all of the pod.
"""

PROCESSES: Final = 256

ANNOTATIONS: Final = {
    "argocd.argoproj.io/ignore-healthcheck": "true",
    "kubectl.kubernetes.io/default-container": SANDBOX_CONTAINER,
}


def sandbox_template(run: TrainingRun, inputs: RunInputs) -> k8s.PodObject | None:
    """The pod without attempt, slot and incarnation; None if the run asks for no sandboxes."""
    asked, bounds = run.spec.sandbox, inputs.runtime.spec.sandbox
    if asked is None or bounds is None:
        return None
    spec = _pod_spec(run, inputs, asked, bounds)
    return owned_template(run, inputs.runtime, SANDBOX_COMPONENT, ANNOTATIONS, spec)


def sandbox_pod(template: k8s.PodObject, attempt: int, slot: int, incarnation: int) -> k8s.PodObject:
    """The pod of one slot, ready to be created."""
    pod = pod_of_slot(template, "sandbox", attempt, slot, incarnation)
    metadata = pod["metadata"]
    pod["spec"]["securityContext"]["runAsUser"] = _user_of(metadata["namespace"], metadata["name"])
    return pod


def _user_of(*names: str) -> int:
    return FIRST_USER + int(hashlib.sha256("/".join(names).encode()).hexdigest()[:12], 16) % USERS


def _pod_spec(run: TrainingRun, inputs: RunInputs, asked: RunSandboxes, bounds: RuntimeSandboxes) -> k8s.PodSpec:
    runtime = inputs.runtime
    resources = written_resources(sandbox_resources(asked.resources, bounds))
    image = Image(asked.image or bounds.image or runtime.spec.image, runtime.spec.image_pull_policy)
    rollout = rollout_seconds(inputs.sections(run).env, inputs.known)
    arguments = _server_arguments(run, sandbox_seconds(asked, bounds, rollout), resources["limits"])
    classes: k8s.PodSpec = {"runtimeClassName": bounds.runtime_class_name} if bounds.runtime_class_name else {}
    return {
        **CONFINED_POD,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "hostname": SANDBOX_CONTAINER,
        "securityContext": pod_security(SANDBOX_GROUP),
        "initContainers": [_tools_container(runtime_image(runtime), resources)],
        "containers": [_sandbox_container(image, resources, arguments)],
        "volumes": [{"name": "tools", "emptyDir": {}}, folder("work", resources)],
        **NO_DNS,
        **pull_secrets(runtime.spec.image_pull_secrets),
        **placement(runtime),
        **classes,
    }


def _server_arguments(run: TrainingRun, seconds: int, limits: Mapping[str, str | int]) -> str:
    """As `tinker_atropos.sandboxes.sandbox_server.pod_server` reads them."""
    return json.dumps(
        {
            "port": SANDBOX_PORT,
            "owner": run.metadata.uid,
            "folder": AGENT_FOLDER,
            "memory_mb": max(1, _mebibytes(limits["memory"]) - SERVER_MB),
            "disk_mb": _mebibytes(limits[EPHEMERAL]),
            "processes": PROCESSES,
            "seconds": seconds,
        }
    )


def _mebibytes(quantity: str | int) -> int:
    return int((parse_quantity(quantity) or 0) / 2**20)


def _tools_container(image: Image, resources: k8s.Resources) -> k8s.Container:
    """With the sandbox's resources: it runs before it, so that they count once."""
    command = ["cp", "-r", f"{TOOLS_IN_IMAGE}/.", TOOLS_FOLDER]
    return {
        **confined_container("tools", image, command, resources),
        "volumeMounts": [{"name": "tools", "mountPath": TOOLS_FOLDER}],
    }


def _sandbox_container(image: Image, resources: k8s.Resources, arguments: str) -> k8s.Container:
    return {
        **confined_container(SANDBOX_CONTAINER, image, [f"{TOOLS_FOLDER}/bin/sandbox-server", arguments], resources),
        "workingDir": SCRATCH,
        "ports": [{"name": SANDBOX_CONTAINER, "containerPort": SANDBOX_PORT}],
        "volumeMounts": [
            {"name": "tools", "mountPath": TOOLS_FOLDER, "readOnly": True},
            {"name": "work", "mountPath": SCRATCH},
        ],
    }
