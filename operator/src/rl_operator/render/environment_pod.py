"""The pod of an environment that runs separately from its run: an own one, which is untrusted, or one of several.

It gets no token, no keys except those that its runtime lists, another user than the run's own pod, and a limit on
everything that it could fill.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rl_operator.api.environment import Environment
from rl_operator.api.names import (
    ATTEMPT_LABEL,
    ENVIRONMENT_COMPONENT,
    ENVIRONMENT_CONTAINER,
    INCARNATION_LABEL,
    OPENENV_ENVIRONMENT,
    SLOT_LABEL,
)
from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.spec_parts.container_resources import ResourceRequirements
from rl_operator.api.spec_parts.openenv import OpenEnv
from rl_operator.render.container_template import (
    CONFIG_FILE,
    CONFIG_FOLDER,
    DEFAULT_RESOURCES,
    EPHEMERAL,
    NO_DNS,
    Image,
    config_mount,
    container,
    folder,
    pod_security,
    runtime_environment_image,
    runtime_resources,
    scratch_volume,
)
from rl_operator.render.env_vars import EnvVar, place_env_vars, remote_environment_env_vars
from rl_operator.render.network.environment_network import resolves_names, service_host
from rl_operator.render.network.sandbox_network import sandbox_host
from rl_operator.render.openenv_server import server_container, server_volume, settings_env_vars
from rl_operator.render.pod import apart_metadata, placement, pull_secrets

SOURCE_FOLDER: Final = f"{CONFIG_FOLDER}/source"

ENVIRONMENT_ID: Final = 65533
GRACE_SECONDS: Final = 30
"""There is nothing to save: rollouts in progress are abandoned."""

UNKNOWN_ADDRESS: Final = "0.0.0.0"  # noqa: S104 -- nothing listens there: it stands in a template
"""Of the run's pod, before it has one."""

DEFAULT_LIMITS: Final = {"memory": "4Gi", EPHEMERAL: "2Gi"}

ANNOTATIONS: Final = {
    "argocd.argoproj.io/ignore-healthcheck": "true",  # it would report a pod that never restarts as Progressing
    "kubectl.kubernetes.io/default-container": ENVIRONMENT_CONTAINER,
}


def environment_template(run: TrainingRun, inputs: RunInputs, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """The pod without attempt, slot and incarnation, and without its config. `source`: the ConfigMap with the frozen
    files of an own one.
    """
    runtime = inputs.runtime
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": apart_metadata(run, runtime, ENVIRONMENT_COMPONENT, ANNOTATIONS),
        "spec": _pod_spec(run, inputs, source["metadata"]["name"] if source else None),
    }


def environment_pod(
    template: Mapping[str, Any], attempt: int, slot: int, incarnation: int, address: str = UNKNOWN_ADDRESS
) -> dict[str, Any]:
    """The pod of one slot, ready to be created; `incarnation` (from 0) grows when it is replaced. `address`: the IP of
    the run's pod, for one that may not ask DNS.
    """
    pod = copy.deepcopy(dict(template))
    metadata = pod["metadata"]
    for alias in pod["spec"].get("hostAliases", ()):
        alias["ip"] = address
    metadata["name"] = f"{metadata.pop('generateName')}{attempt}-env-{slot}-{incarnation}"
    metadata["labels"] |= {ATTEMPT_LABEL: str(attempt), SLOT_LABEL: str(slot), INCARNATION_LABEL: str(incarnation)}
    pod["spec"]["containers"][0]["env"] += place_env_vars(attempt, slot)
    return pod


def with_share(pod: dict[str, Any], share: Sequence[EnvVar]) -> dict[str, Any]:
    """An environment pod that knows its share of the run's sandboxes."""
    pod["spec"]["containers"][0]["env"] += share
    return pod


def _pod_spec(run: TrainingRun, inputs: RunInputs, source: str | None) -> dict[str, Any]:
    resources, openenv = environment_resources(inputs), environment_openenv(inputs)
    beside = openenv if openenv and openenv.runs_beside else None
    volumes = [folder(scratch_volume(ENVIRONMENT_CONTAINER), resources), *([server_volume(beside)] if beside else [])]
    mounts = [config_mount()]
    if source:
        volumes.append({"name": "source", "configMap": {"name": source}})
        mounts.append({"name": "source", "mountPath": SOURCE_FOLDER, "readOnly": True})
    command = ["tinker-atropos", "environment", environment_entry(run, inputs), "serve", "--config", CONFIG_FILE]
    image = environment_image(inputs)
    env_vars = remote_environment_env_vars(run, inputs, service_host(run), sandbox_host(run))
    env_vars += settings_env_vars(openenv) if openenv else []
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security(ENVIRONMENT_ID),
        **({"initContainers": [server_container(beside)]} if beside else {}),
        "containers": [container(ENVIRONMENT_CONTAINER, image, command, env_vars, resources=resources, mounts=mounts)],
        "volumes": volumes,
        **({} if resolves_names(inputs) else _without_dns(service_host(run))),
        **environment_pull_secrets(inputs),
        **placement(inputs.runtime),
    }


def _without_dns(host: str) -> dict[str, Any]:
    """Only the run's pod has a name."""
    return {**NO_DNS, "hostAliases": [{"ip": UNKNOWN_ADDRESS, "hostnames": [host]}]}


def environment_openenv(inputs: RunInputs) -> OpenEnv | None:
    own = inputs.environment.own
    return own.spec.openenv if own else None


def environment_entry(run: TrainingRun, inputs: RunInputs) -> str:
    own, known = inputs.environment.own, inputs.environment.known
    if own is None:
        return run.spec.environment
    if own.spec.image:
        return own.spec.image.entry
    if own.spec.openenv:
        return OPENENV_ENVIRONMENT
    assert known is not None, "an accepted run has a known environment"
    return f"{SOURCE_FOLDER}/{known.file_path}"


def environment_image(inputs: RunInputs) -> Image:
    own = inputs.environment.own
    image = own.spec.image if own else None
    return Image(image.reference, image.pull_policy) if image else runtime_environment_image(inputs.runtime)


def environment_pull_secrets(inputs: RunInputs) -> dict[str, Any]:
    own = inputs.environment.own
    references = own.spec.image.pull_secrets if own and own.spec.image else inputs.runtime.spec.image_pull_secrets
    openenv = environment_openenv(inputs)
    all_of_them = dict.fromkeys((*references, *(openenv.pull_secrets if openenv else ())))
    return pull_secrets([reference.to_wire() for reference in all_of_them])


def environment_resources(inputs: RunInputs) -> dict[str, Any]:
    """What the environment requests, else the runtime, else the defaults; never without a limit on what it may fill."""
    chosen = _asked(inputs.environment.own) or runtime_resources(inputs.runtime, ENVIRONMENT_CONTAINER)
    requests, limits = dict(chosen.get("requests", {})), dict(chosen.get("limits", {}))
    for name, default in DEFAULT_LIMITS.items():
        limits.setdefault(name, requests.get(name, default))
    if "cpu" not in limits:  # else Kubernetes uses the limit as the request
        requests.setdefault("cpu", DEFAULT_RESOURCES[ENVIRONMENT_CONTAINER]["requests"]["cpu"])
    return {"requests": requests, "limits": limits}


def _asked(own: Environment | None) -> dict[str, Any] | None:
    return own.spec.resources.to_wire() if own and own.spec.resources != ResourceRequirements() else None
