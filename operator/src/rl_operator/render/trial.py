"""A trial: a provider's models answer an environment's items, before anything is trained. One Job, one container per
model; the environment runs as it would in its run, with the run's config, and nothing trains.

A user who may create Jobs in a namespace may use its Secrets, too: a trial gives its caller nothing new. Code or a
command of a user's own is a stranger's to that caller: it gets no key at all. A container beside it has the provider's,
and passes requests on (`tinker-atropos provider`), and a NetworkPolicy bounds whom the pod reaches.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rl_contract.env_vars import RL_INFERENCE_API_KEY, RL_INFERENCE_URL
from rl_contract.processes import INFERENCE_PORT, INFERENCE_URL
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.names import RUN_KIND, TRIAL_ANNOTATION, TRIAL_LABEL
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import InferenceProvider
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.yaml_text import write_yaml
from rl_operator.render.container_env_vars import SCRATCH, literals, secret_env_var
from rl_operator.render.container_template import (
    CONFIG_FILE,
    CONFIG_FOLDER,
    CONFIG_KEY,
    CONFIG_MOUNT,
    CONFINED_POD,
    SMALL_RESOURCES,
    confined_container,
    folder,
    pod_security,
    runtime_image,
    scratch_volume,
)
from rl_operator.render.environment_pod import (
    ENVIRONMENT_ID,
    SOURCE_FOLDER,
    environment_entry,
    environment_image,
    environment_pull_secrets,
    environment_resources,
)
from rl_operator.render.labels import config_map_of, helper_labels, job_of, owned_by
from rl_operator.render.manifests import render_config
from rl_operator.render.pod import placement, pod_name_prefix

PROMPTS_KEY: Final = "prompts.json"
LIMIT_SECONDS: Final = 600
"""Per model."""

START_SECONDS: Final = 600
"""For pulling the image and scheduling the pod."""

TTL_SECONDS: Final = 86_400
MAX_MODELS: Final = 8
PROVIDER_CONTAINER: Final = "provider"


@dataclass(frozen=True)
class Trial:
    """What each of the models is asked. With `prompts` each of them is a step, sampled with these two settings."""

    models: tuple[str, ...]
    steps: int
    group_size: int
    prompts: tuple[str, ...] = ()
    max_tokens: int = 256
    temperature: float = 1.0

    @property
    def steps_requested(self) -> int:
        return len(self.prompts) or self.steps


def trial_name(run: TrainingRun, suffix: str) -> str:
    """The Job's name: at most 63 characters with a suffix of three."""
    return f"{pod_name_prefix(run)}t{suffix}"


def trial_job(
    run: TrainingRun,
    inputs: RunInputs,
    provider: InferenceProvider,
    trial: Trial,
    *,
    name: str,
    files: Sequence[str] = (),
    here: bool = False,
) -> k8s.JobObject:
    """The Job. `files` are the names of an own environment's files; the Job's ConfigMap has its name. `here`: on this
    machine, where code, key and provider are the caller's.
    """
    labels = _labels(run)
    volume: k8s.Volume = {"name": "config", "configMap": {"name": name, "items": _items(trial, files)}}
    metadata: k8s.ManifestMetadata = {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": labels,
        "annotations": {TRIAL_ANNOTATION: json.dumps(_told(run, inputs, provider, trial), sort_keys=True)},
        "ownerReferences": [owned_by(RUN_KIND, run.metadata)],
    }
    runtime = inputs.runtime.spec
    template: k8s.PodTemplate = {
        "metadata": {"labels": runtime.pod_labels | labels, "annotations": runtime.pod_annotations},
        "spec": _pod_spec(run, inputs, provider, trial, volume, here=here),
    }
    return job_of(metadata, template, limit_seconds=LIMIT_SECONDS + START_SECONDS, ttl_seconds=TTL_SECONDS)


def trial_config_map(
    run: TrainingRun, inputs: RunInputs, trial: Trial, *, name: str, files: Mapping[str, str]
) -> k8s.ConfigMapObject:
    """Without an owner: the creator of the Job knows its uid."""
    prompts = {PROMPTS_KEY: json.dumps(trial.prompts, ensure_ascii=False)} if trial.prompts else {}
    metadata: k8s.ManifestMetadata = {"name": name, "namespace": run.metadata.namespace, "labels": _labels(run)}
    texts = {CONFIG_KEY: write_yaml(render_config(run, inputs)), **prompts, **files}
    return config_map_of(metadata, texts, immutable=True)


def model_container(index: int) -> str:
    return f"model-{index}"


def is_tried_apart(inputs: RunInputs, *, here: bool) -> bool:
    """Whether the key is in a container beside the models', and a NetworkPolicy bounds the pod."""
    return inputs.environment.runs_own_code and not here


def _pod_spec(
    run: TrainingRun, inputs: RunInputs, provider: InferenceProvider, trial: Trial, volume: k8s.Volume, *, here: bool
) -> k8s.PodSpec:
    image, resources = environment_image(inputs), environment_resources(inputs)
    names = [model_container(index) for index in range(len(trial.models))]
    beside = is_tried_apart(inputs, here=here)
    env_vars = _env_vars(InferenceProvider(url=INFERENCE_URL) if beside else provider)
    return {
        **placement(inputs.runtime),
        **environment_pull_secrets(inputs),
        **(_gate(inputs, provider, trial) if beside else {}),
        **CONFINED_POD,
        "activeDeadlineSeconds": LIMIT_SECONDS + START_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "securityContext": pod_security(ENVIRONMENT_ID),
        "containers": [
            {
                **confined_container(name, image, _command(run, inputs, trial, model), resources),
                "workingDir": SCRATCH,
                "env": env_vars,
                "volumeMounts": [{"name": scratch_volume(name), "mountPath": SCRATCH}, CONFIG_MOUNT],
            }
            for name, model in zip(names, trial.models, strict=True)
        ],
        "volumes": [volume, *(folder(scratch_volume(name), resources) for name in names)],
    }


def _items(trial: Trial, files: Sequence[str]) -> list[k8s.KeyToPath]:
    keys = [CONFIG_KEY, *([PROMPTS_KEY] if trial.prompts else [])]
    below = SOURCE_FOLDER.removeprefix(f"{CONFIG_FOLDER}/")
    return [
        *(k8s.KeyToPath(key=key, path=key) for key in keys),
        *(k8s.KeyToPath(key=name, path=f"{below}/{name}") for name in files),
    ]


def _command(run: TrainingRun, inputs: RunInputs, trial: Trial, model: str) -> list[str]:
    entry = environment_entry(run, inputs)
    chosen = {"--config": CONFIG_FILE, "--model": model, "--steps": trial.steps, "--group-size": trial.group_size}
    asked = {
        "--prompts": f"{CONFIG_FOLDER}/{PROMPTS_KEY}",
        "--max-tokens": trial.max_tokens,
        "--temperature": trial.temperature,
    }
    options = chosen | (asked if trial.prompts else {}) | {"--limit": LIMIT_SECONDS}
    return ["tinker-atropos", "environment", entry, "process", *(f"{key}={value}" for key, value in options.items())]


_ANSWERS: Final = f"import socket; socket.create_connection(('127.0.0.1', {INFERENCE_PORT}))"


def _gate(inputs: RunInputs, provider: InferenceProvider, trial: Trial) -> k8s.PodSpec:
    """A native sidecar with the platform's image, which has the key. It listens on loopback, where no kubelet asks."""
    command = ["tinker-atropos", "provider", *(f"--model={model}" for model in trial.models)]
    gate: k8s.Container = {
        **confined_container(PROVIDER_CONTAINER, runtime_image(inputs.runtime), command, SMALL_RESOURCES),
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["python", "-c", _ANSWERS]}, "periodSeconds": 1, "failureThreshold": 120},
        "env": _env_vars(provider),
    }
    return {"initContainers": [gate]}


def _env_vars(provider: InferenceProvider) -> list[k8s.EnvVar]:
    keys = [secret_env_var(RL_INFERENCE_API_KEY, provider.key_secret)] if provider.key_secret else []
    return [*literals({"HOME": SCRATCH, RL_INFERENCE_URL: provider.url}), *keys]


def _told(run: TrainingRun, inputs: RunInputs, provider: InferenceProvider, trial: Trial) -> dict[str, object]:
    """What a later caller learns about the trial, knowing only its name."""
    known = inputs.environment.known
    return {
        "environment": run.spec.environment,
        "environment_file": known.file_path if known else "",
        "provider": provider.url,
        "models": list(trial.models),
        "steps": trial.steps_requested,
        "group_size": trial.group_size,
        "prompts": bool(trial.prompts),
    }


def _labels(run: TrainingRun) -> dict[str, str]:
    return helper_labels(run, "rl-trial", TRIAL_LABEL, run.metadata.name)
