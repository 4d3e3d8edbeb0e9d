"""What a user of one namespace can write without affecting other users."""

import json
from typing import Any

from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.policies import door, installed_policies, refusal_of
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.cluster.test_environments import GOOD
from tests.integration.cluster.written_environments import OwnEnvironments


def run_document(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": "large"}}
    return {**head, "spec": spec}


DEPTH = 9_900
"""The API server takes 10,000."""


def test_deep_settings_do_not_stop_other_runs(runs: RunsNamespace, operator_process: OperatorProcess) -> None:
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"deep": "DEEP"}}
    run = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": "deep"}}
    text = json.dumps({**run, "spec": spec}).replace('"DEEP"', "[" * DEPTH + "]" * DEPTH)
    runs.admin.post_text(RUNS.format(namespace=runs.namespace), text)
    runs.apply()
    runs.until_pod()
    operator_process.kill()
    operator_process.start()
    runs.apply("again")
    runs.until_pod(name="again")


def test_unreadable_settings_are_named_and_can_be_fixed(runs: RunsNamespace) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    runs.apply("deep", config={"deep": deep})
    refused = runs.until_reason("Accepted", "OutOfBounds", "nested more than", name="deep")
    assert refused["status"] == "False"
    assert runs.status("deep")["refusals"][0]["field"] == "spec.config.deep"
    runs.edit("deep", config=None)
    runs.until_pod(name="deep")


def test_what_is_too_large_is_refused_at_the_door(guarded_plane: ControlPlane) -> None:
    """By the schema what it can say, by the policy the rest: never because a policy cost too much."""
    fields = {f"field_{n}": 1 for n in range(10_000)}
    for config, said in (
        (fields, "spec.config: Too many: 10000: must have at most 256 items"),
        ({"a": "x" * 900_000}, "spec.config.a: Too long"),
        ({"a": [1] * 400_000}, "spec.config.a: Too many: 400000: must have at most 1000 items"),
        ({"a": [["x" * 900_000]]}, "spec.config: it takes more than 200 kB, and no more are allowed: shorten it"),
        (dict.fromkeys(list(fields)[:256], [[]] * 1_000), "spec.config: it takes more than 200 kB"),
    ):
        run = run_document(environment="sort_digits", config=config)
        assert said in (door(guarded_plane.admin, "default", run) or "")


def test_the_largest_settings_are_looked_at_by_the_policies(guarded_plane: ControlPlane) -> None:
    """None of their expressions costs more than a policy may."""
    for config in (
        {f"field_{n}": "x" * 49_000 for n in range(4)},
        {f"field_{n}": ["sk" * 80] * 4 for n in range(256)},
        {f"field_{n}": list(range(100)) for n in range(95)},
    ):
        whole = run_document(environment="sort_digits", config=config)
        assert door(guarded_plane.admin, "default", whole) is None
        wrong = run_document(environment="sort_digits", config=config, trainer={"lora_rank": 0})
        assert door(guarded_plane.admin, "default", wrong) == "spec.trainer.lora_rank is 0: it must be at least 1"


PASTED = "this looks like a key, and a run must not contain one"


def test_a_key_in_an_annotation_is_refused_at_the_door(guarded_plane: ControlPlane) -> None:
    for field, name in (("annotations", "note"), ("labels", "example.com/key")):
        run = run_document(environment="sort_digits")
        run["metadata"][field] = {name: "sk-0123456789abcdef0123"}
        where = "annotations.note" if name == "note" else 'labels["example.com/key"]'
        assert (door(guarded_plane.admin, "default", run) or "").startswith(f"metadata.{where}: {PASTED}")
    run["metadata"] = {"name": "large", "annotations": {"log": "x" * 200_000, "commit": "0123456789" * 4}}
    assert door(guarded_plane.admin, "default", run) is None


def test_a_key_that_is_there_already_stops_no_other_change(runs: RunsNamespace) -> None:
    """It was accepted before there was a policy: what would be refused is another one."""
    path = RUNS.format(namespace=runs.namespace)
    run = run_document(environment="sort_digits", runtime="tiny", suspend=True)
    run["metadata"]["annotations"] = {"note": "sk-0123456789abcdef0123"}
    runs.admin.post(path, run)
    runs.until_reason("Accepted", "WiredField", PASTED, name="large")
    with installed_policies(runs.admin):
        change: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"wandb": {"notes": "x"}}}
        runs.admin.patch(f"{path}/large", change)
        change["metadata"]["labels"] = {"a": "sk-0123456789abcdef0123"}
        assert (refusal_of(lambda: runs.admin.patch(f"{path}/large", change)) or "").startswith("metadata.labels.a")
    runs.admin.patch(f"{path}/large", {"metadata": {"annotations": {"note": None}}})
    runs.until_reason("Suspended", "Draft", name="large")


def test_a_large_pod_does_not_stop_other_runs(runs: RunsNamespace) -> None:
    """Watches send an object in one line."""
    runs.apply()
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{runs.until_pod()}"
    runs.admin.patch(path, {"metadata": {"annotations": {f"note-{n}": "x" * 50_000 for n in range(5)}}})
    runs.apply("again")
    runs.until_training(name="again")


def test_odd_sources_are_named_and_do_not_stop_other_runs(runs: RunsNamespace) -> None:
    own = OwnEnvironments(runs.admin, runs.namespace)
    many = {f"f{n}.py": "x = 1\n" for n in range(1_000)}
    sources: dict[str, tuple[dict[str, Any], str]] = {
        "binary": ({"binaryData": {"env.py": "AAAA"}}, "SourceNotText"),
        "large": ({"data": {"env.py": "#" * 1_000_000}}, "SourceTooLarge"),
        "many": ({"data": many}, "SeveralEnvironments"),
        "hostile": ({"data": {"env.py": "x = [" + "f()," * 220_000 + "]\n"}}, "Unreadable"),
        "dotted": ({"data": {".env.py": GOOD}}, "Unreadable"),
        "empty": ({}, "NoEnvironment"),
    }
    for name, (content, _) in sources.items():
        runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/configmaps", {"metadata": {"name": name}, **content})
        own.apply(name)
    for entry in ("../env.py", "$(HOME).py", "a\nb.py", "x" * 253, "é.py"):
        name = f"entry-{len(sources)}"
        sources[name] = ({}, "NoEnvironment")
        own.apply(name, source={"configMap": {"name": "many", "entry": entry}})
    for name, (_, reason) in sources.items():
        _, message = own.until(name, "Stalled", reason)
        assert len(message) < 1_000, message
    own.write("good", env=GOOD)
    own.apply("good")
    own.until("good", "Ready", "EnvironmentFound")
