"""The CustomResourceDefinitions, generated from the models.

`python -m generate.crds FOLDER` writes them and the admission policies; with `--check` it only compares.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from generate.crd_rules import RUN_RULES, RUNTIME_RULES, Rule, sentences
from generate.policies import POLICY_FILE, policies_text
from generate.structural import Schema, bounded, structural_schema
from rl_operator.api.environment import EnvironmentSpec, EnvironmentStatus
from rl_operator.api.names import (
    ENVIRONMENT_KIND,
    ENVIRONMENT_PLURAL,
    GROUP,
    RUN_KIND,
    RUN_PLURAL,
    RUNTIME_KIND,
    RUNTIME_PLURAL,
    VERSION,
)
from rl_operator.api.runtime import RuntimeSpec, RuntimeStatus
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import RunSpec
from rl_operator.documents.yaml_text import write_yaml

HEADER: Final = "# Generated from operator/src/rl_operator/api by `make generate`. Do not edit.\n"


@dataclass(frozen=True)
class _Column:
    """A printer column; `wide` ones show with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_wire(self) -> Schema:
        wire = {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}
        return wire | ({"priority": 1} if self.wide else {})


_AGE: Final = _Column("Age", ".metadata.creationTimestamp", "When it was created.", type="date")


@dataclass(frozen=True)
class _Kind:
    kind: str
    plural: str
    scope: str
    short_names: tuple[str, ...]
    description: str
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[_Column, ...]
    rules: tuple[Rule, ...] = ()
    selectable: tuple[str, ...] = ()


_KINDS: Final = (
    _Kind(
        kind=RUN_KIND,
        plural=RUN_PLURAL,
        scope="Namespaced",
        short_names=("rlrun", "rlruns"),
        description="One RL training run: an environment, and the few settings that its runtime leaves open.",
        spec=RunSpec,
        status=RunStatus,
        columns=(
            _Column("Phase", ".status.phase", "Summary; conditions say more."),
            _Column("Step", ".status.progress.step", "Optimizer steps trained.", type="integer"),
            _Column("Total", ".status.progress.totalSteps", "Optimizer steps of the whole run.", type="integer"),
            _Column(
                "RolloutReward",
                ".status.metrics.rolloutReward",
                "Mean reward of all scored rollouts.",
                type="number",
            ),
            _Column("HeldOut", ".status.metrics.heldOut.value", "The newest figure on held-out items.", type="number"),
            _Column("Environment", ".spec.environment", "What is trained.", wide=True),
            _Column("Runtime", ".spec.runtime", "The platform's side.", wide=True),
            _Column("Message", ".status.message", "What happens now, and what to do.", wide=True),
            _AGE,
        ),
        rules=RUN_RULES,
        selectable=(".spec.environment", ".spec.runtime", ".status.phase"),
    ),
    _Kind(
        kind=RUNTIME_KIND,
        plural=RUNTIME_PLURAL,
        scope="Cluster",
        short_names=("rlrt",),
        description="The platform's side of training runs: image, backend, locked values, bounds, defaults and limits.",
        spec=RuntimeSpec,
        status=RuntimeStatus,
        columns=(
            _Column("Image", ".spec.image", "Image of the containers."),
            _Column(
                "EnvironmentImage", ".spec.environmentImage", "Image of the environment, if another one.", wide=True
            ),
            _Column("Backend", ".spec.backend.url", "Base URL of the Tinker API; empty: the SDK's own."),
            _Column("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether runs can use it."),
            _Column("Message", ".status.conditions[?(@.type=='Ready')].message", "What is in it, or wrong with it."),
            _AGE,
        ),
        rules=RUNTIME_RULES,
    ),
    _Kind(
        kind=ENVIRONMENT_KIND,
        plural=ENVIRONMENT_PLURAL,
        scope="Namespaced",
        short_names=("rlenv", "rlenvs"),
        description="An environment of one's own, `environment: own/NAME`. It runs in a pod apart from every key.",
        spec=EnvironmentSpec,
        status=EnvironmentStatus,
        columns=(
            _Column("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether runs can use it."),
            _Column("Class", ".status.className", "The class that was found."),
            _Column("Message", ".status.conditions[?(@.type=='Stalled')].message", "What is wrong with it."),
            _AGE,
        ),
    ),
)


def custom_resource_definitions() -> dict[str, dict[str, Any]]:
    """All CRDs, by plural."""
    return {kind.plural: _definition(kind) for kind in _KINDS}


def rules_in_words(kind: str) -> list[str]:
    """What the API server also checks, on whole objects of a kind."""
    return next(sentences(each.rules) for each in _KINDS if each.kind == kind)


def crd_files() -> dict[str, str]:
    """File name -> text of every generated CRD."""
    return {
        f"{GROUP}_{plural}.yaml": HEADER + write_yaml(definition)
        for plural, definition in custom_resource_definitions().items()
    }


def generated_files() -> dict[str, str]:
    """File name -> text of everything in crds/: the CRDs, and the policies, which are applied after them."""
    return {**crd_files(), POLICY_FILE: HEADER + policies_text()}


def _definition(kind: _Kind) -> dict[str, Any]:
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.to_wire() for column in kind.columns],
        "schema": {"openAPIV3Schema": _root_schema(kind)},
    }
    selectable = {"selectableFields": [{"jsonPath": path} for path in kind.selectable]} if kind.selectable else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["rl"],
            },
            "versions": [version | selectable],
        },
    }


_STATUS: Final[Schema] = {
    # kstatus treats an object without a status as finished; with this one it is in progress.
    "default": {"observedGeneration": -1},
    # It has one author. To track the owner of each of its fields is a large part of what a write of it costs.
    "x-kubernetes-map-type": "atomic",
}


def _root_schema(kind: _Kind) -> Schema:
    status = bounded(_without_defaults(structural_schema(kind.status)))
    schema = {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this representation."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": structural_schema(kind.spec),
            "status": status | _STATUS,
        },
    }
    return schema | ({"x-kubernetes-validations": [rule.to_wire() for rule in kind.rules]} if kind.rules else {})


def _without_defaults(schema: Schema) -> Schema:
    """A status states what was written and nothing else."""
    properties = schema.get("properties", {})
    cleaned = {key: value for key, value in schema.items() if key not in ("default", "nullable")}
    if properties:
        cleaned["properties"] = {name: _without_defaults(child) for name, child in properties.items()}
    if isinstance(schema.get("items"), Mapping):
        cleaned["items"] = _without_defaults(schema["items"])
    return cleaned


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the CustomResourceDefinitions and policies, or compare them.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 when a file is not current")
    arguments = parser.parse_args()
    stale = [
        arguments.folder / name
        for name, text in generated_files().items()
        if not (arguments.folder / name).exists() or (arguments.folder / name).read_text(encoding="utf-8") != text
    ]
    if arguments.check and stale:
        sys.exit(f"not current: {', '.join(map(str, stale))}; run `python -m generate.crds {arguments.folder}`")
    for file in stale:
        file.write_text(generated_files()[file.name], encoding="utf-8")


if __name__ == "__main__":
    main()
