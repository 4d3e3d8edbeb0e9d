"""A run, a runtime and a catalog to start from, in their wire form."""

from typing import Any

from rl_contract.content_hash import sha256_of_texts
from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND, RUN_KIND, RUNTIME_KIND
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import load_documents, parse_run, parse_runtime, run_among
from rl_operator.documents.shipped import bundled_catalog, bundled_runtimes
from rl_operator.documents.source_files import source_hash

UID = "0a1b2c3d-1111-4222-8333-444455556666"
CATALOG = bundled_catalog()
TINY = bundled_runtimes()["tiny"]
DEFAULT = bundled_runtimes()["default"]


def run_document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {"name": "sorting", "namespace": "team-a", "uid": UID},
        "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
    }


def frozen(manifest: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """The ConfigMap `sorting-config` of a run that was started with these texts, which its status says from now on."""
    metadata = manifest["metadata"]
    uid = metadata.setdefault("uid", UID)
    name = f"{metadata['name']}-config"
    manifest["status"] = manifest.get("status", {}) | {"configMapName": name, "configHash": sha256_of_texts(texts)}
    owner = {"kind": RUN_KIND, "name": metadata["name"], "uid": uid, "controller": True}
    named = {"name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": texts, "immutable": True}


def load_run(text: str) -> TrainingRun:
    """The only run of a file."""
    return run_among(load_documents(text))


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


def inputs_of(run: TrainingRun, runtime: Runtime = TINY, catalog: Catalog = CATALOG) -> RunInputs:
    """A run's inputs if it names an environment of the catalog."""
    return RunInputs(runtime, choose_environment(run.spec.environment, runtime, catalog, None))


SOURCE_FILES = {"digits.py": "class Digits(BaseEnv): ...\n", "tools.py": "ANSWER = 42\n"}


def own_environment(**spec: Any) -> Environment:
    """An RLEnvironment `digits` whose files SOURCE_FILES were read; `spec` in camelCase replaces its source."""
    found = CATALOG.named("sort_digits")
    assert found is not None
    fields = [field.to_wire() for field in found.fields]
    ready = {"type": "Ready", "status": "True", "reason": "Discovered", "lastTransitionTime": "2026-05-01T12:00:00Z"}
    document = {
        "apiVersion": API_VERSION,
        "kind": ENVIRONMENT_KIND,
        "metadata": {"name": "digits", "namespace": "team-a", "uid": "e-1", "generation": 1},
        "spec": {"source": {"configMap": {"name": "code"}}, **spec},
        "status": {
            "observedGeneration": 1,
            "conditions": [ready],
            "sourceHash": source_hash(SOURCE_FILES),
            "entry": "digits.py",
            "className": "Digits",
            "fields": fields,
        },
    }
    return Environment.model_validate(document)


def openenv_environment(**openenv: Any) -> Environment:
    """An RLEnvironment `digits` that is an OpenEnv server, as the operator left it; `openenv` in camelCase."""
    server = openenv if "url" in openenv else {"image": "registry.test/echo:1", **openenv}
    known = CATALOG.named("openenv")
    assert known is not None
    document = own_environment(source=None, openenv=server)
    status = document.status.with_changes(entry="openenv", class_name=known.class_name, fields=known.fields)
    return document.with_changes(status=status)


KINDS: dict[str, tuple[str, Environment | None, bool]] = {
    "bundled": ("sort_digits", None, False),
    "reasoning-gym": ("reasoning-gym/chain_sum", None, False),
    "harness": ("harness/sort_digits", None, True),
    "a file": ("./digits.py", own_environment(), True),
    "source": ("own/digits", own_environment(), True),
    "image": ("own/digits", own_environment(source=None, image={"reference": "evil.example/x", "entry": "e.py"}), True),
    "openenv": ("own/digits", openenv_environment(), False),
}
"""Every kind of environment: a name, the RLEnvironment behind it, and whether a user's own code or command runs."""


def inputs_of_kind(kind: str, runtime: Runtime, **spec: Any) -> tuple[TrainingRun, RunInputs]:
    """A run of one of KINDS on `lab`; `spec` in camelCase."""
    name, own, _ = KINDS[kind]
    run = make_run(runtime="lab", environment=name, **spec)
    return run, RunInputs(runtime, choose_environment(name, runtime, CATALOG, own))


def own_inputs(run: TrainingRun, runtime: Runtime = TINY, own: Environment | None = None) -> RunInputs:
    """A run's inputs if it names an RLEnvironment."""
    environment = own or own_environment()
    return RunInputs(runtime, choose_environment(run.spec.environment, runtime, CATALOG, environment))


def tasksets() -> Catalog:
    """Three tasksets of the family `verifiers`: they share fields, and have fields of their own inside of `taskset`."""
    shared = [*_SHARED, {"name": "tools", "type": "dict[str, int]", "default": {}}]
    size = {"name": "taskset.size", "type": "int", "default": 100, "description": "How many.", "minimum": 1}
    level = {"name": "taskset.level", "type": "Literal['easy', 'hard']", "default": "easy"}
    weights = {"name": "taskset.weights", "type": "dict[str, float]", "default": {}}
    family = {"name": "verifiers", "description": "Tasksets.", "fields": shared}
    members = [
        {"name": "verifiers/sorting", "description": "Sort.", "family": "verifiers", "fields": [size, level, weights]},
        {"name": "verifiers/poker", "description": "Play.", "family": "verifiers", "fields": []},
        {"name": "verifiers/word_game", "description": "Guess.", "family": "verifiers", "fields": []},
    ]
    alone = {"name": "toy", "fields": _SHARED}
    return Catalog.model_validate({"environments": [alone, *members], "families": [family]})


_SHARED: list[dict[str, Any]] = [
    {"name": "total_steps", "type": "int", "default": 10},
    {"name": "group_size", "type": "int", "default": 4},
    {"name": "batch_size", "type": "int", "default": 8},
    {"name": "max_token_length", "type": "int", "default": 64},
    {"name": "tokenizer_name", "type": "str", "default": "bundled"},
]


def catalog_of(*fields: dict[str, Any]) -> Catalog:
    """One environment `toy` with these fields and the shared ones."""
    replaced = {field["name"] for field in fields}
    kept = [field for field in _SHARED if field["name"] not in replaced]
    return Catalog.model_validate({"environments": [{"name": "toy", "fields": [*kept, *fields]}]})
