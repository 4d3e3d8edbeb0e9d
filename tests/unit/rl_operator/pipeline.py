"""From documents to what follows from them: parse, check, render, as a reconcile does. Also as a program of its own.

`python -m tests.unit.rl_operator.pipeline` reads a JSON list of cases and writes the list of their outcomes: two
processes with different hash seeds must write the same.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_operator.api.catalog import Catalog
from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import ParentRun, RunInputs, choose_environment
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import StartedFrom
from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import DocumentError, parse_environment, parse_run, parse_runtime
from rl_operator.documents.shipped import bundled_catalog, bundled_runtimes
from rl_operator.render.environment_pod import environment_pod
from rl_operator.render.manifests import Rendered, render_run
from rl_operator.render.pod import pod_of_attempt

FILES = {"mine.py": "class Mine(BaseEnv): ...\n", "notes.txt": "é 🦜\n"}
"""The files of the environment own/mine."""


@dataclass(frozen=True)
class Outcome:
    """`refused` holds the reasons; or the run is `rendered`; or neither, if it waits for something."""

    refused: tuple[Refusal, ...] = ()
    rendered: Rendered | None = None

    @property
    def accepted(self) -> bool:
        return self.rendered is not None

    def to_wire(self) -> dict[str, Any]:
        children = {"config": self.rendered.config, "children": children_of(self.rendered)} if self.rendered else {}
        return {"refused": [[refusal.to_wire(), refusal.sentence] for refusal in self.refused], **children}


def outcome_of(case: Mapping[str, Any]) -> Outcome:
    """The outcome of a case of tests/unit/rl_operator/strategies.py."""
    try:
        run, inputs = parse_run(case["run"]), inputs_in(case)
    except DocumentError as error:
        return Outcome(error.refusals)
    refusals = check_run(run, inputs)
    if refusals or inputs.environment.known is None:
        return Outcome(refusals)
    own = inputs.environment.own
    return Outcome(rendered=render_run(run, inputs, FILES if own and own.spec.source else None))


def inputs_in(case: Mapping[str, Any]) -> RunInputs:
    runtime = _runtime(case["runtime"])
    own = parse_environment(case["own"]) if case["own"] is not None else None
    catalog = _catalog(case["catalog"])
    name = case["run"]["spec"]["environment"]
    named = own if name == f"own/{own.metadata.name if own else ''}" else None
    environment = choose_environment(name, runtime, catalog, named)
    start_from = parse_run(case["run"]).spec.start_from
    parent = _parent(case["parent"], start_from.run) if start_from and start_from.run else None
    return RunInputs(runtime, environment, case["labels"], parent)


def _runtime(named: str | Mapping[str, Any]) -> Runtime:
    """A shipped runtime is given by its name."""
    return bundled_runtimes()[named] if isinstance(named, str) else parse_runtime(named)


def _catalog(wire: str | Mapping[str, Any] | None) -> Catalog | None:
    """The shipped catalog is given by a word; None: not read yet."""
    if isinstance(wire, str):
        return bundled_catalog()
    return None if wire is None else Catalog.model_validate(wire)


def _parent(wire: Mapping[str, Any] | None, name: str) -> ParentRun:
    if wire is None:
        return ParentRun(name, exists=False)
    state = StartedFrom.model_validate(wire["state"]) if wire.get("state") else None
    return ParentRun(**{**wire, "name": name, "state": state})


def children_of(rendered: Rendered) -> list[KubernetesObject]:
    """Everything that the API server may be asked to create for a first attempt."""
    templates = rendered.templates
    pods = [pod_of_attempt(templates.pod, 1, exposed=True), environment_pod(templates.environment, 1, 0, 0)]
    return [*rendered.config_maps, *templates.network, *pods]


def main() -> None:
    json.dump([outcome_of(case).to_wire() for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
