"""The Job that serves a run's rollouts once its trainer has ended: from where the trainer kept them, read-only.

It is made with the reader's rights, from the run's own pod as it was frozen: the same image, claim or bucket.
"""

from typing import Final

from rl_contract.env_vars import RL_ROLLOUTS_URL
from rl_contract.processes import TRAINER_PORT
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import SCRATCH, ops_token_env_var
from rl_operator.render.container_template import (
    CONFINED_POD,
    SMALL_RESOURCES,
    Image,
    confined_container,
    folder,
    probe,
)
from rl_operator.render.labels import helper_labels, job_of, owned_by, pod_labels
from rl_operator.render.pod import ANNOTATIONS, pod_name_prefix
from rl_operator.render.rollout_sink import ROLLOUT_VOLUME, SINK_VARIABLES, SINK_VOLUMES

READER_CONTAINER: Final = "rollouts"

IDLE_SECONDS: Final = 600
"""It ends this long after the last question."""

COMMAND: Final = ("tinker-atropos", "rollouts", f"--idle-exit={IDLE_SECONDS}")
LIMIT_SECONDS: Final = 14_400
TTL_SECONDS: Final = 60


def keeps_rollouts(pod: k8s.PodObject) -> bool:
    """Whether the rollouts of a run outlive this pod of its."""
    trainer = _trainer(pod)
    mounted = any(mount["name"] == ROLLOUT_VOLUME for mount in trainer["volumeMounts"])
    return mounted or any(each["name"] == RL_ROLLOUTS_URL for each in trainer["env"])


def rollout_reader_job(run: TrainingRun, pod: k8s.PodObject, suffix: str, ops_token: str) -> k8s.JobObject:
    """`pod`: the template of the run's pod, which keeps rollouts. The name has at most 63 characters with a suffix of
    three. `ops_token`: for the reader's server.

    The pod's label of the run's uid puts it behind the run's NetworkPolicy.
    """
    labels = helper_labels(run, "rl-rollouts", names.ROLLOUTS_LABEL, run.metadata.uid)
    ours = {*pod_labels(run, names.TRAINING_COMPONENT), names.QUEUE_NAME_LABEL}
    chosen = {name: value for name, value in pod["metadata"]["labels"].items() if name not in ours}
    our_notes = {*ANNOTATIONS, names.RUNTIME_ANNOTATION}
    noted = {name: value for name, value in pod["metadata"]["annotations"].items() if name not in our_notes}
    metadata: k8s.ManifestMetadata = {
        "name": f"{pod_name_prefix(run)}r{suffix}",
        "namespace": run.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owned_by(names.RUN_KIND, run.metadata)],
    }
    template: k8s.PodTemplate = {
        "metadata": {"labels": chosen | labels | {names.RUN_UID_LABEL: run.metadata.uid}, "annotations": noted},
        "spec": _pod_spec(pod, ops_token),
    }
    return job_of(metadata, template, limit_seconds=LIMIT_SECONDS, ttl_seconds=TTL_SECONDS)


def _pod_spec(pod: k8s.PodObject, ops_token: str) -> k8s.PodSpec:
    spec = pod["spec"]
    volumes = [each for each in spec["volumes"] if each["name"] in SINK_VOLUMES]
    return {
        **_copied(spec),
        **CONFINED_POD,
        "activeDeadlineSeconds": LIMIT_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "containers": [_container(_trainer(pod), ops_token)],
        "volumes": [*volumes, folder("tmp", SMALL_RESOURCES)],
    }


def _copied(spec: k8s.PodSpec) -> k8s.PodSpec:
    """What the platform chose for the run's pod."""
    copied = k8s.PodSpec()
    for name in ("imagePullSecrets", "nodeSelector", "runtimeClassName", "securityContext", "tolerations"):
        if name in spec:
            copied[name] = spec[name]
    return copied


def _container(trainer: k8s.Container, ops_token: str) -> k8s.Container:
    mounts: list[k8s.VolumeMount] = [
        {**each, "readOnly": True} for each in trainer["volumeMounts"] if each["name"] in SINK_VOLUMES
    ]
    env_vars = [each for each in trainer["env"] if each["name"] in SINK_VARIABLES]
    image = Image(trainer["image"], trainer.get("imagePullPolicy"))
    return {
        **confined_container(READER_CONTAINER, image, COMMAND, SMALL_RESOURCES),
        "workingDir": SCRATCH,
        "env": [{"name": "HOME", "value": SCRATCH}, *env_vars, ops_token_env_var(ops_token)],
        "ports": [{"name": READER_CONTAINER, "containerPort": TRAINER_PORT}],
        "readinessProbe": probe(names.TRAINER_CONTAINER, period_seconds=1, failure_threshold=3),
        "volumeMounts": [{"name": "tmp", "mountPath": SCRATCH}, *mounts],
    }


def _trainer(pod: k8s.PodObject) -> k8s.Container:
    return next(each for each in pod["spec"]["containers"] if each["name"] == names.TRAINER_CONTAINER)
