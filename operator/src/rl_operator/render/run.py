"""Everything that one run becomes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from rl_operator.api.premises import Premises
from rl_operator.api.run import TrainingRun
from rl_operator.api.yaml_text import write_yaml
from rl_operator.render.config import render_config
from rl_operator.render.labels import child_labels, owner_reference
from rl_operator.render.pod import CONFIG_KEY, pod_name_prefix, pod_template

POD_KEY: Final = "pod.json"


@dataclass(frozen=True)
class Rendered:
    """`pod` is a template: `pod_of_attempt` makes a pod of it. `config_hash` covers config and template."""

    config: dict[str, Any]
    config_hash: str
    config_map: dict[str, Any]
    pod: dict[str, Any]


def render_run(run: TrainingRun, premises: Premises) -> Rendered:
    """Render an accepted run. Equal inputs give equal results, on every machine and in every release of Python."""
    config = render_config(run, premises)
    config_hash = _hash([config, pod_template(run, premises, config_map="")])
    name = config_map_name(run, config_hash)
    pod = pod_template(run, premises, name)
    return Rendered(config, config_hash, _config_map(run, name, config, pod), pod)


def config_map_name(run: TrainingRun, config_hash: str) -> str:
    return f"{run.metadata.name}-{config_hash}"


def pod_name(run: TrainingRun, attempt: int) -> str:
    return f"{pod_name_prefix(run)}{attempt}"


def template_of(config_map: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template that a ConfigMap of ours holds."""
    return cast("dict[str, Any]", json.loads(config_map["data"][POD_KEY]))


def _config_map(run: TrainingRun, name: str, config: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": run.metadata.namespace,
            "labels": child_labels(run, "config"),
            "ownerReferences": [owner_reference(run)],
        },
        "immutable": True,
        "data": {CONFIG_KEY: write_yaml(config), POD_KEY: json.dumps(pod, sort_keys=True)},
    }


def _hash(content: Any) -> str:
    """8 hex digits of the canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
