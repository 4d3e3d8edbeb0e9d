"""A run, a runtime and a catalogue to start from, in their wire form."""

from typing import Any

from rl_operator.api.bundled import bundled_catalogue, bundled_runtimes
from rl_operator.api.catalogue import Catalogue
from rl_operator.api.loading import parse_run, parse_runtime
from rl_operator.api.names import API_VERSION, RUN_KIND, RUNTIME_KIND
from rl_operator.api.premises import Premises, choose_environment
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import Runtime

UID = "0a1b2c3d-1111-4222-8333-444455556666"
CATALOGUE = bundled_catalogue()
TINY = bundled_runtimes()["tiny"]
DEFAULT = bundled_runtimes()["default"]


def run_document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {"name": "sorting", "namespace": "team-a", "uid": UID},
        "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
    }


def make_run(**spec: Any) -> TrainingRun:
    """A run of sort_digits on `tiny`; `spec` in camelCase."""
    return parse_run(run_document(**spec))


def make_runtime(**spec: Any) -> Runtime:
    """A runtime `lab` that locks nothing; `spec` in camelCase."""
    document = {
        "apiVersion": API_VERSION,
        "kind": RUNTIME_KIND,
        "metadata": {"name": "lab"},
        "spec": {"image": "tinker-atropos:dev", **spec},
    }
    return parse_runtime(document)


def premises_of(run: TrainingRun, runtime: Runtime = TINY, catalogue: Catalogue = CATALOGUE) -> Premises:
    """A run's premises where it names an environment of the catalogue."""
    return Premises(runtime, choose_environment(run.spec.environment, runtime, catalogue, None))


def catalogue_of(*fields: dict[str, Any]) -> Catalogue:
    """One environment `toy` with these fields and the shared ones."""
    shared = [
        {"name": "total_steps", "type": "int", "default": 10},
        {"name": "group_size", "type": "int", "default": 4},
        {"name": "batch_size", "type": "int", "default": 8},
        {"name": "max_token_length", "type": "int", "default": 64},
        {"name": "tokenizer_name", "type": "str", "default": "bundled"},
    ]
    replaced = {field["name"] for field in fields}
    kept = [field for field in shared if field["name"] not in replaced]
    return Catalogue.model_validate({"environments": [{"name": "toy", "fields": [*kept, *fields]}]})
