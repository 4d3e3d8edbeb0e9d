"""Everything that is rendered for one run: its config file, its pods and what they need."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

import orjson

from rl_contract.content_hash import sha256_of_texts
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.settings.fields import TRAINER_FIELDS, nested
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.yaml_text import write_yaml
from rl_operator.operator_errors import InvalidError
from rl_operator.render.container_template import CONFIG_KEY, mounting
from rl_operator.render.environment_pod import environment_template
from rl_operator.render.frozen_texts import ENVIRONMENTS_KEY, POD_KEY, SANDBOXES_KEY, frozen_texts
from rl_operator.render.labels import child_metadata, config_map_of
from rl_operator.render.network import network_children, sandbox_network_children
from rl_operator.render.pod import pod_name_prefix, pod_template
from rl_operator.render.sandbox_pod import sandbox_template

HASH_IN_NAME: Final = 8
"""Hex digits of a hash that stand in a name. They tell versions apart; what is believed has the whole hash."""

NetworkObject = k8s.NetworkPolicyObject | k8s.ServiceObject


class PodsApart(TypedDict):
    """What is frozen of the pods of a kind beside the run's own one."""

    pod: k8s.PodObject
    network: list[NetworkObject]


@dataclass(frozen=True)
class Templates:
    """What attempts are made from: `pod_of_attempt` makes a pod from `pod`, `environment_pod` one from `environment`,
    `sandbox_pod` one from `sandbox`, which is None if the run asks for no sandboxes.

    `network` is what environments in separate pods also need, and `sandbox_network` what sandboxes do, in the order of
    creation.
    """

    pod: k8s.PodObject
    environment: k8s.PodObject
    network: tuple[NetworkObject, ...]
    sandbox: k8s.PodObject | None = None
    sandbox_network: tuple[NetworkObject, ...] = ()


@dataclass(frozen=True)
class Rendered:
    """`config_hash`, a SHA-256, covers all of it. `source`: a ConfigMap with the frozen files of an own environment."""

    config: dict[str, object]
    config_hash: str
    config_map: k8s.ConfigMapObject
    source: k8s.ConfigMapObject | None
    templates: Templates

    @property
    def config_maps(self) -> tuple[k8s.ConfigMapObject, ...]:
        """In the order of creation: if the run's own one exists, so does the other one."""
        return (self.source, self.config_map) if self.source else (self.config_map,)


def render_run(run: TrainingRun, inputs: RunInputs, files: Mapping[str, str] | None = None) -> Rendered:
    """Render an accepted run. Equal inputs give equal results, on every machine and in every release of Python.

    `files` are the Python files of an own environment.
    """
    config = render_config(run, inputs)
    source = _source(run, files) if files else None
    pod, sandbox = pod_template(run, inputs), sandbox_template(run, inputs)
    environment = environment_template(run, inputs, source)
    environments: PodsApart = {"pod": environment, "network": network_children(run, inputs)}
    sandboxes: PodsApart | None = {"pod": sandbox, "network": sandbox_network_children(run)} if sandbox else None
    texts = {
        CONFIG_KEY: write_yaml(config),
        POD_KEY: _text(pod),
        ENVIRONMENTS_KEY: _text(environments),
        **({SANDBOXES_KEY: _text(sandboxes)} if sandboxes else {}),
    }
    config_hash = sha256_of_texts(texts)
    name = config_map_name(run, config_hash)
    held = config_map_of(child_metadata(run, name, "config"), texts, immutable=True)
    return Rendered(config, config_hash, held, source, _templates(name, texts, pod, environments, sandboxes))


def render_config(run: TrainingRun, inputs: RunInputs) -> dict[str, object]:
    """The sections of `config.yaml`, which trainer and environment read: without addresses and without secrets.
    `openai` is a list of one: the policy's server.
    """
    sections, wandb = inputs.sections(run), run.spec.wandb
    tracking = {
        "wandb_project": wandb.project or inputs.runtime.spec.wandb.project,
        "wandb_group": wandb.group,
        "wandb_run_name": wandb.name or run.metadata.name,
    }
    return {
        "env": nested(sections.env, inputs.known.fields_by_name),
        "openai": [sections.openai],
        "tinker": nested(sections.trainer, TRAINER_FIELDS)
        | {name: value for name, value in tracking.items() if value is not None},
        "slurm": False,
        "testing": False,
    }


def config_map_name(run: TrainingRun, config_hash: str) -> str:
    return f"{run.metadata.name}-{config_hash[:HASH_IN_NAME]}"


def pod_name(run: TrainingRun, attempt: int) -> str:
    return f"{pod_name_prefix(run)}{attempt}"


def templates_of(config_map: k8s.ConfigMapObject, run: TrainingRun) -> Templates:
    """What the run's attempts are made from. Raises NameTakenError or TemplateChangedError, as `frozen_texts` does, and
    InvalidError if another release wrote it.
    """
    held, name = frozen_texts(config_map, run), config_map["metadata"]["name"]
    if ENVIRONMENTS_KEY not in held:
        raise InvalidError(f"ConfigMap {name} holds no {ENVIRONMENTS_KEY}: start a new run in place of this one")
    sandboxes = json.loads(held[SANDBOXES_KEY]) if SANDBOXES_KEY in held else None
    return _templates(name, held, json.loads(held[POD_KEY]), json.loads(held[ENVIRONMENTS_KEY]), sandboxes)


def _templates(
    config_map: str, texts: Mapping[str, str], pod: k8s.PodObject, apart: PodsApart, sandboxes: PodsApart | None
) -> Templates:
    return Templates(
        mounting(pod, config_map, texts[CONFIG_KEY]),
        mounting(apart["pod"], config_map, texts[CONFIG_KEY]),
        tuple(apart["network"]),
        sandboxes["pod"] if sandboxes else None,
        tuple(sandboxes["network"]) if sandboxes else (),
    )


def _source(run: TrainingRun, files: Mapping[str, str]) -> k8s.ConfigMapObject:
    """The frozen copy of the files: later content of the user's ConfigMap is for later runs."""
    content = sha256_of_texts({run.metadata.uid: sha256_of_texts(files)})[:HASH_IN_NAME]
    metadata = child_metadata(run, f"{run.metadata.name}-source-{content}", "source")
    return config_map_of(metadata, dict(files), immutable=True)


def _text(content: object) -> str:
    """Canonical JSON: equal content is an equal text."""
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()
