"""The pod of a run: three containers, one identity, restricted.

The rendered object is a template without an attempt; `pod_of_attempt` makes attempt N from it, so that attempt 2 is
the same as attempt 1. An own environment is untrusted: it has no container here, but its own pods.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.environment import runs_apart
from rl_operator.api.model import NameReference
from rl_operator.api.names import (
    API_CONTAINER,
    ATTEMPT_LABEL,
    ENVIRONMENT_CONTAINER,
    INCARNATION_LABEL,
    POD_FINALIZER,
    RUNTIME_ANNOTATION,
    SLOT_GATE,
    SLOT_LABEL,
    TRAINER_CONTAINER,
    TRAINING_COMPONENT,
)
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import (
    api_env_vars,
    attempt_env_var,
    environment_env_vars,
    exposed_env_vars,
    trainer_env_vars,
)
from rl_operator.render.container_template import (
    CONFIG_FILE,
    CONFIG_MOUNT,
    CONFINED_POD,
    bounded_resources,
    container,
    folder,
    pod_security,
    probe,
    runtime_environment_image,
    runtime_image,
    scratch_volume,
)
from rl_operator.render.labels import owner_reference, pod_labels, queue_labels
from rl_operator.render.network import sandbox_host
from rl_operator.render.rollout_sink import sink_env_vars, sink_mounts, sink_security, sink_volumes

JOURNAL_FOLDER: Final = "/var/lib/rl"

API_START_SECONDS: Final = 120
BACKSTOP_MARGIN_SECONDS: Final = 300
"""The operator ends a run at the runtime's limit, with a checkpoint; else the kubelet does it this much later."""

UNPRIVILEGED_ID: Final = 65532

ANNOTATIONS: Final = {
    "argocd.argoproj.io/ignore-healthcheck": "true",  # it would report a pod that never restarts as Progressing
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "kubectl.kubernetes.io/default-container": TRAINER_CONTAINER,
}


def pod_template(run: TrainingRun, inputs: RunInputs) -> k8s.PodObject:
    """The pod without an attempt and without its config: `generateName` is the prefix of the attempts' names."""
    annotations = {**ANNOTATIONS, RUNTIME_ANNOTATION: run.spec.runtime}
    pod = owned_template(run, inputs.runtime, TRAINING_COMPONENT, annotations, _pod_spec(run, inputs))
    labels = queue_labels(run) | pod["metadata"]["labels"]
    return {**pod, "metadata": {**pod["metadata"], "labels": labels, "finalizers": [POD_FINALIZER]}}


def owned_template(
    run: TrainingRun, runtime: Runtime, component: str, annotations: dict[str, str], spec: k8s.PodSpec
) -> k8s.PodObject:
    """A pod of a run, without attempt, slot and incarnation."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": pod_name_prefix(run),
            "namespace": run.metadata.namespace,
            "labels": runtime.spec.pod_labels | pod_labels(run, component),
            "annotations": runtime.spec.pod_annotations | annotations,
            "ownerReferences": [owner_reference(run)],
        },
        "spec": spec,
    }


def pod_of_slot(template: k8s.PodObject, word: str, attempt: int, slot: int, incarnation: int) -> k8s.PodObject:
    """A pod beside the run's own one, to be completed; `incarnation` (from 0) grows when it is replaced."""
    pod = copy.deepcopy(template)
    metadata = pod["metadata"]
    metadata["name"] = f"{metadata.pop('generateName')}{attempt}-{word}-{slot}-{incarnation}"
    metadata["labels"] |= {ATTEMPT_LABEL: str(attempt), SLOT_LABEL: str(slot), INCARNATION_LABEL: str(incarnation)}
    return pod


def pod_name_prefix(run: TrainingRun) -> str:
    """The uid tells a run that was deleted and applied again from its predecessor."""
    return f"{run.metadata.name}-{run.metadata.uid[:5]}-"


def pod_of_attempt(
    template: k8s.PodObject,
    attempt: int,
    *,
    exposed: bool,
    by_slots: bool = False,
    continued: Sequence[k8s.EnvVar] = (),
    share: Sequence[k8s.EnvVar] = (),
) -> k8s.PodObject:
    """The pod of attempt `attempt` (from 1), ready to be created. `exposed`: environments run in other pods, too;
    `by_slots`: the runtime limits its active runs; `continued`: the trainer's variables that say what it continues
    from, and what it may cost; `share`: the environment's about the run's sandboxes.
    """
    metadata, spec = template["metadata"].copy(), template["spec"].copy()
    metadata["name"] = f"{metadata.pop('generateName')}{attempt}"
    metadata["labels"] = {**metadata["labels"], ATTEMPT_LABEL: str(attempt)}
    own = {TRAINER_CONTAINER: continued, ENVIRONMENT_CONTAINER: share}
    spec["initContainers"] = [_of_attempt(each, attempt, exposed, own) for each in spec["initContainers"]]
    spec["containers"] = [_of_attempt(each, attempt, exposed, own) for each in spec["containers"]]
    if by_slots:
        spec["schedulingGates"] = [{"name": SLOT_GATE}]
    return {**template, "metadata": metadata, "spec": spec}


def _of_attempt(
    container: k8s.Container, attempt: int, exposed: bool, own: Mapping[str, Sequence[k8s.EnvVar]]
) -> k8s.Container:
    env_vars = exposed_env_vars(container["name"], container["env"]) if exposed else container["env"]
    return {**container, "env": [*env_vars, attempt_env_var(attempt), *own.get(container["name"], ())]}


def placement(runtime: Runtime) -> k8s.PodSpec:
    """Where and how long pods of the runtime run."""
    spec, chosen = runtime.spec, k8s.PodSpec()
    if seconds := _backstop_seconds(runtime):
        chosen["activeDeadlineSeconds"] = seconds
    if spec.node_selector:
        chosen["nodeSelector"] = spec.node_selector
    if spec.priority_class_name:
        chosen["priorityClassName"] = spec.priority_class_name
    if spec.runtime_class_name:
        chosen["runtimeClassName"] = spec.runtime_class_name
    if spec.tolerations:
        chosen["tolerations"] = [toleration.to_wire() for toleration in spec.tolerations]
    return chosen


def node_choice(runtime: Runtime) -> k8s.PodSpec:
    """On which nodes, and by which container runtime there."""
    chosen = placement(runtime)
    chosen.pop("activeDeadlineSeconds", None)
    chosen.pop("priorityClassName", None)
    return chosen


def pull_secrets(references: Iterable[NameReference]) -> k8s.PodSpec:
    found: list[k8s.NamedReference] = [{"name": reference.name} for reference in references]
    return {"imagePullSecrets": found} if found else {}


def _pod_spec(run: TrainingRun, inputs: RunInputs) -> k8s.PodSpec:
    runtime = inputs.runtime
    containers = [_trainer_container(run, inputs)]
    if not runs_apart(run.spec.environment):
        containers.append(_environment_container(run, inputs))
    names = [API_CONTAINER, *(each["name"] for each in containers)]
    return {
        **CONFINED_POD,
        "terminationGracePeriodSeconds": runtime.spec.termination_grace_period_seconds,
        "securityContext": pod_security(UNPRIVILEGED_ID) | sink_security(runtime),
        "initContainers": [_api_container(run, runtime)],
        "containers": containers,
        "volumes": [
            folder("journal", bounded_resources(runtime, API_CONTAINER)),
            *(folder(scratch_volume(name), bounded_resources(runtime, name)) for name in names),
            *sink_volumes(runtime),
        ],
        **pull_secrets(runtime.spec.image_pull_secrets),
        **placement(runtime),
    }


def _backstop_seconds(runtime: Runtime) -> int | None:
    """From the runtime's limit only: the run's own deadline may still be raised, a pod's may not."""
    limit = runtime.spec.limits.active_deadline_seconds
    return limit + runtime.spec.termination_grace_period_seconds + BACKSTOP_MARGIN_SECONDS if limit else None


def _api_container(run: TrainingRun, runtime: Runtime) -> k8s.Container:
    """A native sidecar: the others start after its startup probe passed, and it is stopped after they ended."""
    command = ["tinker-atropos", "api", "--data", JOURNAL_FOLDER]
    mounts: list[k8s.VolumeMount] = [{"name": "journal", "mountPath": JOURNAL_FOLDER}]
    resources = bounded_resources(runtime, API_CONTAINER)
    image, env_vars = runtime_image(runtime), api_env_vars(run)
    return container(API_CONTAINER, image, command, env_vars, resources=resources, mounts=mounts) | {
        "restartPolicy": "Always",
        "startupProbe": probe(API_CONTAINER, period_seconds=1, failure_threshold=API_START_SECONDS),
    }


def _trainer_container(run: TrainingRun, inputs: RunInputs) -> k8s.Container:
    runtime = inputs.runtime
    env_vars = [*trainer_env_vars(run, inputs), *sink_env_vars(run, runtime)]
    command = ["tinker-atropos", "trainer", "--config", CONFIG_FILE]
    image, resources = runtime_image(runtime), bounded_resources(runtime, TRAINER_CONTAINER)
    mounts = [CONFIG_MOUNT, *sink_mounts(run, runtime)]
    return container(TRAINER_CONTAINER, image, command, env_vars, resources=resources, mounts=mounts)


def _environment_container(run: TrainingRun, inputs: RunInputs) -> k8s.Container:
    command = ["tinker-atropos", "environment", run.spec.environment, "serve", "--config", CONFIG_FILE]
    runtime, env_vars = inputs.runtime, environment_env_vars(run, inputs, sandbox_host(run))
    image, resources = runtime_environment_image(runtime), bounded_resources(runtime, ENVIRONMENT_CONTAINER)
    return container(ENVIRONMENT_CONTAINER, image, command, env_vars, resources=resources, mounts=[CONFIG_MOUNT])
