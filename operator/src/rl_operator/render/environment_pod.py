"""The pod of an environment that runs separately from its run: an own one, which is untrusted, or one of several.

It gets no token, no keys except those that its runtime lists, another user than the run's own pod, and a limit on
everything that it could fill.

An OpenEnv server beside it is not ours: it gets no variable but its port and where it may write, no key, no token, no
config, no name resolution. The containers of a pod share their network: it reaches what the environment reaches.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from rl_contract.content_hash import sha256_of_texts
from rl_contract.env_vars import RL_OPENENV, RL_OPENENV_PORT, RL_SOURCE_SHA256
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.spec_parts.container_resources import ResourceRequirements
from rl_operator.api.spec_parts.openenv import OpenEnv
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import SCRATCH, environment_env_vars, literals, place_env_vars
from rl_operator.render.container_template import (
    CONFIG_FILE,
    CONFIG_FOLDER,
    CONFIG_MOUNT,
    CONFINED_POD,
    CONTAINER_SECURITY,
    DEFAULT_RESOURCES,
    EPHEMERAL,
    NO_DNS,
    PROBE_SECONDS,
    Image,
    container,
    folder,
    limited,
    literal,
    pod_security,
    runtime_environment_image,
    runtime_resources,
    scratch_volume,
    written_resources,
)
from rl_operator.render.network import resolves_names, sandbox_host, service_host
from rl_operator.render.pod import owned_template, placement, pod_of_slot, pull_secrets

SOURCE_FOLDER: Final = f"{CONFIG_FOLDER}/source"
SOURCE_VOLUME: Final = "source"

ENVIRONMENT_ID: Final = 65533
GRACE_SECONDS: Final = 30
"""There is nothing to save: rollouts in progress are abandoned."""

UNKNOWN_ADDRESS: Final = "0.0.0.0"  # noqa: S104 -- nothing listens there: it stands in a template
"""Of the run's pod, before it has one."""

DEFAULT_LIMITS: Final = {"memory": "4Gi", EPHEMERAL: "2Gi"}

ANNOTATIONS: Final = {
    "argocd.argoproj.io/ignore-healthcheck": "true",  # it would report a pod that never restarts as Progressing
    "kubectl.kubernetes.io/default-container": names.ENVIRONMENT_CONTAINER,
}


def environment_template(run: TrainingRun, inputs: RunInputs, source: k8s.ConfigMapObject | None) -> k8s.PodObject:
    """The pod without attempt, slot and incarnation, and without its config. `source`: the ConfigMap with the frozen
    files of an own one.
    """
    spec = _pod_spec(run, inputs, source)
    return owned_template(run, inputs.runtime, names.ENVIRONMENT_COMPONENT, ANNOTATIONS, spec)


def environment_pod(
    template: k8s.PodObject,
    attempt: int,
    slot: int,
    incarnation: int,
    address: str = UNKNOWN_ADDRESS,
    *,
    share: Sequence[k8s.EnvVar] = (),
) -> k8s.PodObject:
    """The pod of one slot, ready to be created. `address`: the IP of the run's pod, for one that may not ask DNS;
    `share`: variables about the run's sandboxes.
    """
    pod = pod_of_slot(template, "env", attempt, slot, incarnation)
    for alias in pod["spec"].get("hostAliases", ()):
        alias["ip"] = address
    pod["spec"]["containers"][0]["env"] += [*place_env_vars(attempt, slot), *share]
    return pod


def source_of(template: k8s.PodObject) -> tuple[str, str] | None:
    """Name and hash of the ConfigMap with the files that it mounts; None: it mounts none."""
    volume = next((each for each in template["spec"]["volumes"] if each["name"] == SOURCE_VOLUME), None)
    env_vars = template["spec"]["containers"][0]["env"]
    sha256 = next((each["value"] for each in env_vars if each["name"] == RL_SOURCE_SHA256), "")
    return (volume["configMap"]["name"], sha256) if volume else None


def _pod_spec(run: TrainingRun, inputs: RunInputs, source: k8s.ConfigMapObject | None) -> k8s.PodSpec:
    resources, openenv = environment_resources(inputs), inputs.environment.openenv
    beside = openenv if openenv and openenv.runs_beside else None
    volumes = [
        folder(scratch_volume(names.ENVIRONMENT_CONTAINER), resources),
        *([folder(scratch_volume(names.OPENENV_CONTAINER), _server_resources(beside))] if beside else []),
    ]
    mounts = [CONFIG_MOUNT]
    if source:
        volumes.append({"name": SOURCE_VOLUME, "configMap": {"name": source["metadata"]["name"]}})
        mounts.append({"name": SOURCE_VOLUME, "mountPath": SOURCE_FOLDER, "readOnly": True})
    command = ["tinker-atropos", "environment", environment_entry(run, inputs), "serve", "--config", CONFIG_FILE]
    image = environment_image(inputs)
    env_vars = environment_env_vars(run, inputs, sandbox_host(run), service_host(run))
    env_vars += settings_env_vars(openenv) if openenv else []
    env_vars += literals({RL_SOURCE_SHA256: sha256_of_texts(source["data"])}) if source else []
    only_name: k8s.PodSpec = {**NO_DNS, "hostAliases": [{"ip": UNKNOWN_ADDRESS, "hostnames": [service_host(run)]}]}
    server: k8s.PodSpec = {"initContainers": [server_container(beside)]} if beside else {}
    return {
        **CONFINED_POD,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security(ENVIRONMENT_ID),
        **server,
        "containers": [
            container(names.ENVIRONMENT_CONTAINER, image, command, env_vars, resources=resources, mounts=mounts)
        ],
        "volumes": volumes,
        **({} if resolves_names(run, inputs) else only_name),
        **environment_pull_secrets(inputs),
        **placement(inputs.runtime),
    }


def environment_entry(run: TrainingRun, inputs: RunInputs) -> str:
    own = inputs.environment.own
    if own is None:
        return run.spec.environment
    if own.spec.image:
        return own.spec.image.entry
    if own.spec.openenv:
        return names.OPENENV_ENVIRONMENT
    return f"{SOURCE_FOLDER}/{inputs.known.file_path}"


def environment_image(inputs: RunInputs) -> Image:
    own = inputs.environment.own
    image = own.spec.image if own else None
    return Image(image.reference, image.pull_policy) if image else runtime_environment_image(inputs.runtime)


def environment_pull_secrets(inputs: RunInputs) -> k8s.PodSpec:
    own = inputs.environment.own
    references = own.spec.image.pull_secrets if own and own.spec.image else inputs.runtime.spec.image_pull_secrets
    openenv = inputs.environment.openenv
    return pull_secrets(dict.fromkeys((*references, *(openenv.pull_secrets if openenv else ()))))


def environment_resources(inputs: RunInputs) -> k8s.Resources:
    """What the environment requests, else the runtime, else the defaults; never without a limit on what it may fill."""
    own, unset = inputs.environment.own, ResourceRequirements()
    asked = written_resources(own.spec.resources) if own and own.spec.resources != unset else None
    chosen = limited(asked or runtime_resources(inputs.runtime, names.ENVIRONMENT_CONTAINER), DEFAULT_LIMITS, {})
    if "cpu" not in chosen["limits"]:  # else Kubernetes uses the limit as the request
        chosen["requests"].setdefault("cpu", DEFAULT_RESOURCES[names.ENVIRONMENT_CONTAINER]["requests"]["cpu"])
    return chosen


PORT_VARIABLE: Final = "PORT"
"""For the server: where to listen. Also in its command, as `$PORT`."""

START_PERIOD_SECONDS: Final = 2
START_FAILURES: Final = 300
"""Ten minutes: servers load data sets and models before they answer."""

SERVER_LIMITS: Final = {"cpu": "2", "memory": "2Gi", EPHEMERAL: "1Gi"}
DEFAULT_REQUESTS: Final = {"cpu": "250m", "memory": "512Mi", EPHEMERAL: "64Mi"}

_PORT_WORD: Final = re.compile(rf"\$\${PORT_VARIABLE}\b")


def settings_env_vars(openenv: OpenEnv) -> list[k8s.EnvVar]:
    """For our environment."""
    settings = {
        "url": openenv.url or f"http://127.0.0.1:$({RL_OPENENV_PORT})",
        "maxSessions": openenv.max_sessions,
        "timeoutSeconds": openenv.timeout_seconds,
        "trainingSeeds": openenv.training_seeds,
        "heldOutSeeds": openenv.held_out_seeds,
    }
    port = literals({RL_OPENENV_PORT: str(openenv.port)}) if openenv.runs_beside else []
    return [*port, {"name": RL_OPENENV, "value": json.dumps(settings)}]


def server_container(openenv: OpenEnv) -> k8s.Container:
    """A native sidecar: it is started again whenever it ends, and ended after the environment. The environment starts
    after the server answered for the first time.

    The only probe is that one, of a route that every OpenEnv server has: a server that is busy with a step answers no
    probe, and to restart it then would cost all of its sessions.
    """
    # The words as they are, but for the port: that is the only variable that the kubelet expands in them.
    words = [_PORT_WORD.sub(f"$({PORT_VARIABLE})", word) for word in literal(openenv.command)]
    command: k8s.Container = {"command": words} if words else {}
    image = Image(openenv.image or "", openenv.pull_policy)
    return {
        "name": names.OPENENV_CONTAINER,
        "image": image.reference,
        **image.policy,
        **command,
        "env": literals({"HOME": SCRATCH, "TMPDIR": SCRATCH, PORT_VARIABLE: str(openenv.port)}),
        "ports": [{"name": names.OPENENV_CONTAINER, "containerPort": openenv.port}],
        "restartPolicy": "Always",
        "startupProbe": {
            "httpGet": {"path": "/health", "port": openenv.port},
            "periodSeconds": START_PERIOD_SECONDS,
            "timeoutSeconds": PROBE_SECONDS,
            "failureThreshold": START_FAILURES,
        },
        "resources": _server_resources(openenv),
        "securityContext": CONTAINER_SECURITY | {"readOnlyRootFilesystem": openenv.read_only_root_filesystem},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": scratch_volume(names.OPENENV_CONTAINER), "mountPath": SCRATCH}],
    }


def _server_resources(openenv: OpenEnv) -> k8s.Resources:
    """What the author asks for; never without a limit. Where a limit alone is given, it is the request, too."""
    return limited(written_resources(openenv.resources), SERVER_LIMITS, DEFAULT_REQUESTS)
