"""The pod of a run: three containers, one identity, restricted.

What is rendered is a template without an attempt; `pod_of_attempt` makes attempt N of it, so that attempt 2 is what
attempt 1 was.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

from rl_operator.api.names import (
    API_CONTAINER,
    ATTEMPT_LABEL,
    ENVIRONMENT_CONTAINER,
    POD_FINALIZER,
    RUN_UID_ANNOTATION,
    TRAINER_CONTAINER,
)
from rl_operator.api.premises import Premises
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import ResourceRequirements, Runtime
from rl_operator.render.env_vars import (
    OPS_PORTS,
    SCRATCH,
    EnvVar,
    api_env_vars,
    attempt_env_var,
    environment_env_vars,
    trainer_env_vars,
)
from rl_operator.render.labels import child_labels, owner_reference

CONFIG_FOLDER: Final = "/etc/rl"
CONFIG_KEY: Final = "config.yaml"
CONFIG_FILE: Final = f"{CONFIG_FOLDER}/{CONFIG_KEY}"
JOURNAL_FOLDER: Final = "/var/lib/rl"

API_START_SECONDS: Final = 120
BACKSTOP_MARGIN_SECONDS: Final = 300
"""The operator ends a run at the runtime's limit, with a checkpoint; the kubelet this much later if nobody did."""

UNPRIVILEGED_ID: Final = 65532

DEFAULT_RESOURCES: Final[Mapping[str, dict[str, dict[str, str]]]] = {
    API_CONTAINER: {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    TRAINER_CONTAINER: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
    ENVIRONMENT_CONTAINER: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
}

ANNOTATIONS: Final = {
    "argocd.argoproj.io/ignore-healthcheck": "true",  # it would call a pod that never restarts Progressing
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "kubectl.kubernetes.io/default-container": TRAINER_CONTAINER,
}


def pod_template(run: TrainingRun, premises: Premises, config_map: str) -> dict[str, Any]:
    """The pod without an attempt: `generateName` holds what the attempts' names begin with."""
    runtime = premises.runtime
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": pod_name_prefix(run),
            "namespace": run.metadata.namespace,
            "labels": runtime.spec.pod_labels | child_labels(run, "training"),
            "annotations": runtime.spec.pod_annotations | ANNOTATIONS | {RUN_UID_ANNOTATION: run.metadata.uid},
            "finalizers": [POD_FINALIZER],
            "ownerReferences": [owner_reference(run)],
        },
        "spec": _pod_spec(run, premises, config_map),
    }


def pod_name_prefix(run: TrainingRun) -> str:
    """The uid keeps a run that was deleted and applied again apart from its former self."""
    return f"{run.metadata.name}-{run.metadata.uid[:5]}-"


def pod_of_attempt(template: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """The pod of attempt `attempt` (from 1), ready to be created."""
    pod = copy.deepcopy(dict(template))
    metadata = pod["metadata"]
    metadata["name"] = f"{metadata.pop('generateName')}{attempt}"
    metadata["labels"][ATTEMPT_LABEL] = str(attempt)
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["env"].append(attempt_env_var(attempt))
    return pod


def _pod_spec(run: TrainingRun, premises: Premises, config_map: str) -> dict[str, Any]:
    runtime, spec = premises.runtime, premises.runtime.spec
    chosen = {
        "activeDeadlineSeconds": _backstop_seconds(runtime),
        "imagePullSecrets": [reference.to_wire() for reference in spec.image_pull_secrets],
        "nodeSelector": spec.node_selector,
        "priorityClassName": spec.priority_class_name,
        "runtimeClassName": spec.runtime_class_name,
        "tolerations": [toleration.to_wire() for toleration in spec.tolerations],
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UNPRIVILEGED_ID,
            "runAsGroup": UNPRIVILEGED_ID,
            "fsGroup": UNPRIVILEGED_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_api_container(run, runtime)],
        "containers": [_trainer_container(run, premises), _environment_container(run, runtime)],
        "volumes": [
            {"name": "config", "configMap": {"name": config_map, "items": [{"key": CONFIG_KEY, "path": CONFIG_KEY}]}},
            {"name": "journal", "emptyDir": {}},
            *({"name": _scratch_volume(container), "emptyDir": {}} for container in OPS_PORTS),
        ],
        **{name: value for name, value in chosen.items() if value},
    }


def _backstop_seconds(runtime: Runtime) -> int | None:
    """From the runtime's limit only: the run's own deadline may still be raised, a pod's may not."""
    limit = runtime.spec.limits.active_deadline_seconds
    return limit + runtime.spec.termination_grace_period_seconds + BACKSTOP_MARGIN_SECONDS if limit else None


def _api_container(run: TrainingRun, runtime: Runtime) -> dict[str, Any]:
    """A native sidecar: the others start after its start-up probe passed, and it is stopped after they ended."""
    command = ["tinker-atropos", "api", "--data", JOURNAL_FOLDER]
    mounts = [{"name": "journal", "mountPath": JOURNAL_FOLDER}]
    return _container(API_CONTAINER, runtime, command, api_env_vars(run), mounts) | {
        "restartPolicy": "Always",
        "startupProbe": _probe(API_CONTAINER, period_seconds=1, failure_threshold=API_START_SECONDS),
    }


def _trainer_container(run: TrainingRun, premises: Premises) -> dict[str, Any]:
    command = ["tinker-atropos", "trainer", "--config", CONFIG_FILE]
    return _container(TRAINER_CONTAINER, premises.runtime, command, trainer_env_vars(run, premises), [_config_mount()])


def _environment_container(run: TrainingRun, runtime: Runtime) -> dict[str, Any]:
    command = ["tinker-atropos", "environment", run.spec.environment, "serve", "--config", CONFIG_FILE]
    return _container(ENVIRONMENT_CONTAINER, runtime, command, environment_env_vars(run, runtime), [_config_mount()])


def _container(
    name: str, runtime: Runtime, command: list[str], env_vars: list[EnvVar], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    resources: ResourceRequirements = getattr(runtime.spec.resources, name)
    container = {
        "name": name,
        "image": runtime.spec.image,
        "command": command,
        "workingDir": SCRATCH,
        "env": env_vars,
        "ports": [{"name": f"{name}-ops", "containerPort": OPS_PORTS[name]}],
        "readinessProbe": _probe(name, period_seconds=2, failure_threshold=3),
        "resources": resources.to_wire() if resources != ResourceRequirements() else DEFAULT_RESOURCES[name],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # The trainer's message is its result; only if it wrote none are the last lines of its log taken.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _scratch_volume(name), "mountPath": SCRATCH}, *mounts],
    }
    policy = runtime.spec.image_pull_policy
    return container | ({"imagePullPolicy": policy} if policy else {})


def _probe(container: str, period_seconds: int, failure_threshold: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/healthz", "port": OPS_PORTS[container]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 3,
        "failureThreshold": failure_threshold,
    }


def _config_mount() -> dict[str, Any]:
    return {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}


def _scratch_volume(container: str) -> str:
    return f"{container}-tmp"
