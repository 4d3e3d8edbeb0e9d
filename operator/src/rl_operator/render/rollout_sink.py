"""Where rollouts outlive the pod, as the trainer's container sees it: a folder of a claim, or a bucket's address."""

from typing import Final, Literal

from rl_contract.env_vars import (
    AWS_ENDPOINT_URL,
    AWS_REGION,
    RL_ROLLOUTS_CA_FILE,
    RL_ROLLOUTS_CA_SOURCE,
    RL_ROLLOUTS_DIR,
    RL_ROLLOUTS_SECRET,
    RL_ROLLOUTS_URL,
    STORE_KEYS,
)
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.runtime import Runtime, SecretKey
from rl_operator.api.spec_parts.rollout_sinks import CertificatesKey
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.container_env_vars import literals, secret_env_var

ROLLOUT_FOLDER: Final = "/var/lib/rl-rollouts"
ROLLOUT_VOLUME: Final = "rollouts"
AUTHORITY_FOLDER: Final = "/etc/rl-rollouts"
AUTHORITY_FILE: Final = "ca.crt"
AUTHORITY_VOLUME: Final = "rollouts-ca"
SINK_VOLUMES: Final = frozenset({ROLLOUT_VOLUME, AUTHORITY_VOLUME})

SINK_VARIABLES: Final = frozenset(
    {
        RL_ROLLOUTS_DIR, RL_ROLLOUTS_URL, RL_ROLLOUTS_SECRET, RL_ROLLOUTS_CA_FILE, RL_ROLLOUTS_CA_SOURCE,
        AWS_ENDPOINT_URL, AWS_REGION, *STORE_KEYS,
    }
)  # fmt: skip
"""All that `sink_env_vars` sets."""

CLAIM_SECURITY: Final[k8s.PodSecurity] = {"fsGroupChangePolicy": "OnRootMismatch"}
"""Of a pod with the claim: else the kubelet would go through all files of all runs at each start."""


def sink_env_vars(run: TrainingRun, runtime: Runtime) -> list[k8s.EnvVar]:
    """For the trainer alone, by the names that Amazon's own tools read; nothing if the runtime keeps no rollouts."""
    sinks = runtime.spec.rollouts
    if sinks is None:
        return []
    if sinks.object_store is None:
        return literals({RL_ROLLOUTS_DIR: ROLLOUT_FOLDER})
    store = sinks.object_store
    plain = {
        RL_ROLLOUTS_URL: f"{store.url.rstrip('/')}/{run.metadata.namespace}/{_folder(run)}",
        RL_ROLLOUTS_SECRET: store.secret_name,
        AWS_ENDPOINT_URL: (store.endpoint or "").rstrip("/"),
        AWS_REGION: store.region,
    }
    if found := _authority(runtime):
        kind, place = found
        plain[RL_ROLLOUTS_CA_FILE] = f"{AUTHORITY_FOLDER}/{AUTHORITY_FILE}"
        plain[RL_ROLLOUTS_CA_SOURCE] = f"key {place.key} of {kind} {place.name}"
    secret = store.secret_name
    # Rollouts never keep a run from training: without the Secret it warns that it cannot keep them.
    keys = [secret_env_var(key, SecretKey(name=secret, key=key), optional=True) for key in STORE_KEYS] if secret else []
    return [*literals(plain), *keys]


def sink_mounts(run: TrainingRun, runtime: Runtime) -> list[k8s.VolumeMount]:
    """For the trainer: only the run's own folder of the claim, or the authority of the bucket's server."""
    if _claim(runtime):
        return [{"name": ROLLOUT_VOLUME, "mountPath": ROLLOUT_FOLDER, "subPath": _folder(run)}]
    if _authority(runtime):
        return [{"name": AUTHORITY_VOLUME, "mountPath": AUTHORITY_FOLDER, "readOnly": True}]
    return []


def sink_volumes(runtime: Runtime) -> list[k8s.Volume]:
    if claim := _claim(runtime):
        return [{"name": ROLLOUT_VOLUME, "persistentVolumeClaim": {"claimName": claim}}]
    if found := _authority(runtime):
        kind, place = found
        # As for the store's keys: what is missing is a warning of the trainer's, and no reason not to train.
        items: list[k8s.KeyToPath] = [{"key": place.key, "path": AUTHORITY_FILE}]
        if kind == "Secret":
            secret: k8s.SecretVolume = {"secretName": place.name, "items": items, "optional": True}
            return [{"name": AUTHORITY_VOLUME, "secret": secret}]
        return [{"name": AUTHORITY_VOLUME, "configMap": {"name": place.name, "items": items, "optional": True}}]
    return []


def sink_security(runtime: Runtime) -> k8s.PodSecurity:
    """For the pod's security context."""
    return CLAIM_SECURITY if _claim(runtime) else {}


def _claim(runtime: Runtime) -> str | None:
    claim = runtime.spec.rollouts.persistent_volume_claim if runtime.spec.rollouts else None
    return claim.claim_name if claim else None


def _authority(runtime: Runtime) -> tuple[Literal["ConfigMap", "Secret"], CertificatesKey] | None:
    """In what it is, and where in it."""
    store = runtime.spec.rollouts.object_store if runtime.spec.rollouts else None
    authority = store.certificate_authority if store else None
    if authority is None:
        return None
    if authority.config_map is not None:
        return "ConfigMap", authority.config_map
    return ("Secret", authority.secret) if authority.secret else None


def _folder(run: TrainingRun) -> str:
    """A later run of the same name has another one."""
    return f"{run.metadata.name}-{run.metadata.uid}"
