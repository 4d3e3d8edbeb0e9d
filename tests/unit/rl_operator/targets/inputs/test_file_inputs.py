"""What a file is checked against: its own objects first, then the target's."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.samples import TINY
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.runtime import Runtime
from rl_operator.cli.commands.run_files import objects_of
from rl_operator.documents.parse import DocumentError
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.inputs.file_inputs import check_file, choose_runtime, known_environment, render_file
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs, with_uid


class OneRuntime(MemoryTarget):
    usual_runtime = "default"

    def runtimes(self) -> dict[str, Runtime]:
        return {"tiny": TINY}


def test_the_runtime() -> None:
    assert choose_runtime(MemoryTarget(), "").metadata.name == "tiny"
    assert choose_runtime(MemoryTarget(), "default").metadata.name == "default"
    assert choose_runtime(OneRuntime(), "").metadata.name == "tiny"
    for target in (MemoryTarget(), OneRuntime()):
        with pytest.raises(RefusedError, match=r"there is no such RLRuntime; did you mean 'tiny'\?"):
            choose_runtime(target, "tony")


def test_a_bundled_environment() -> None:
    assert known_environment(MemoryTarget(), "sort_digits", TINY, "default").class_name == "SortDigits"


@pytest.mark.parametrize(
    ("name", "runs_files", "said"),
    [
        (
            "sort_digit",
            True,
            r"no environment 'sort_digit' in memory; did you mean 'sort_digits' or 'harness/sort_digits'\?",
        ),
        ("own/mine", True, "no environment 'own/mine'"),
        (
            "reasoning-gym/chain_sun",
            True,
            r"did you mean 'reasoning-gym/chain_sum'.*\(reasoning-gym has \d+, such as",
        ),
        ("verifiers", True, "the image of runtime 'tiny' has no verifiers: set spec.environmentImage"),
        ("./nobody.py", True, "There is no file .*nobody.py"),
        ("./mine.py", False, "memory trains no files: .* rlctl init --from ./mine.py"),
    ],
)
def test_a_missing_one(name: str, runs_files: bool, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        known_environment(MemoryTarget(runs_files=runs_files), name, TINY, "default")


def test_a_catalog_that_is_not_ready() -> None:
    target = MemoryTarget()
    target.catalog_is_read = False
    with pytest.raises(RefusedError, match="Waiting for the catalog"):
        known_environment(target, "sort_digits", TINY, "default")


@pytest.mark.process
def test_a_file_path_starts_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError, match=r"environment ./mine.py: mine.py"):
        known_environment(MemoryTarget(), "./mine.py", TINY, "default")


ENTRY = Path("tests/data/environments/shout.py").read_text(encoding="utf-8")


def config_map(code: str = ENTRY) -> dict[str, Any]:
    metadata = {"name": "code", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"shout.py": code}}


def environment(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": "shout", "namespace": "default", "generation": 1},
        "spec": {"source": {"configMap": {"name": "code"}}},
        **({"status": status} if status else {}),
    }


def runtime(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": "lab"}}
    return {**head, "spec": {"image": "i", **spec}}


def own_run(**spec: Any) -> Any:
    return parsed(run_manifest(spec={"environment": "own/shout", **spec}))


def codes(file: RunFile, target: MemoryTarget) -> list[str]:
    return [refusal.code for refusal in check_file(file, target)[0]]


@pytest.mark.process
@pytest.mark.parametrize("runs_files", [True, False], ids=["local", "cluster"])
def test_the_code_in_the_file_is_used_and_nothing_is_stored(runs_files: bool) -> None:
    target = MemoryTarget(runs_files=runs_files)
    file = RunFile(own_run(config={"group_size": 2}), (config_map(), environment()))
    assert check_file(file, target) == ((), None)
    assert target.others == {}
    assert codes(RunFile(own_run(config={"group_sise": 2}), file.beside), target) == ["UnknownField"]
    assert codes(RunFile(own_run(), (config_map("def"), environment())), target) == ["EnvironmentNotReady"]
    assert codes(RunFile(own_run(), (environment(),)), target) == ["EnvironmentNotReady"]
    assert codes(RunFile(own_run()), target) == ["UnknownEnvironment"]


def test_on_a_cluster_a_live_environment_has_the_operators_status() -> None:
    target = MemoryTarget(runs_files=False)
    target.apply(environment())
    refusals, pending = check_file(RunFile(own_run()), target)
    assert refusals == ()
    assert pending is not None
    assert pending[0] == "EnvironmentPending"
    with pytest.raises(RefusedError, match="Waiting for RLEnvironment"):
        render_file(RunFile(own_run()), target)


@pytest.mark.parametrize("runs_files", [True, False], ids=["local", "cluster"])
def test_sandbox_pods_are_a_clusters(runs_files: bool) -> None:
    target = MemoryTarget(runs_files=runs_files)
    file = with_uid(RunFile(parsed(run_manifest(spec={"sandbox": {}}))), "0a1b2c3d")
    objects = objects_of(as_it_runs(file, target).run, render_file(file, target))
    assert any("-sandbox-" in each["metadata"]["name"] for each in objects) is not runs_files
    assert ("RL_SANDBOX" in json.dumps(objects)) is not runs_files


@pytest.mark.parametrize("runs_files", [True, False], ids=["local", "cluster"])
def test_their_bounds_are_a_clusters_too(runs_files: bool) -> None:
    """`rlctl run --local` starts such a run: its reconcile does not read spec.sandbox."""
    target = MemoryTarget(runs_files=runs_files)
    file = with_uid(RunFile(parsed(run_manifest(spec={"sandbox": {"size": 999}}))), "0a1b2c3d")
    assert codes(file, target) == ([] if runs_files else ["OutOfBounds"])
    with contextlib.nullcontext() if runs_files else pytest.raises(DocumentError):
        render_file(file, target)


def test_a_missing_catalog_is_waited_for() -> None:
    target = MemoryTarget(runs_files=False)
    target.catalog_is_read = False
    refusals, pending = check_file(RunFile(parsed(run_manifest())), target)
    assert (refusals, pending and pending[0]) == ((), "CatalogPending")


def test_the_runtime_in_the_file_is_used() -> None:
    target = MemoryTarget()
    run = parsed(run_manifest(spec={"runtime": "lab", "config": {"group_size": 16}}))
    assert codes(RunFile(run), target) == ["RuntimeNotFound"]
    assert codes(RunFile(run, (runtime(),)), target) == []
    bounded = runtime(bounds={"env": {"group_size": {"max": 9}}})
    assert codes(RunFile(run, (bounded,)), target) == ["OutOfBounds"]


@pytest.mark.process
def test_rendering_includes_the_frozen_code() -> None:
    file = with_uid(RunFile(own_run(), (config_map(), environment())), "0a1b2c3d")
    rendered = render_file(file, MemoryTarget())
    assert rendered.source is not None
    assert rendered.source["data"] == {"shout.py": ENTRY}


@pytest.mark.parametrize("spec", [{"runtime": "gone"}, {"config": {"group_sise": 1}}])
def test_a_refused_run_is_not_rendered(spec: dict[str, Any]) -> None:
    with pytest.raises(DocumentError):
        render_file(RunFile(parsed(run_manifest(spec=spec))), MemoryTarget())


def test_the_parent_is_read() -> None:
    target = MemoryTarget(run_manifest("parent", phase="Running"))
    child = parsed(run_manifest("child", spec={"startFrom": {"run": "parent"}}))
    [refusal] = check_file(RunFile(child), target)[0]
    assert (refusal.code, "parent" in refusal.sentence) == ("StartFromRefused", True)


@pytest.mark.parametrize(
    ("runs_files", "openenv"),
    [(False, {"image": "registry.test/echo:1"}), (False, {"url": "http://echo"}), (True, {"command": ["serve"]})],
    ids=str,
)
def test_an_openenv_server_in_the_file_is_known_at_once(runs_files: bool, openenv: dict[str, Any]) -> None:
    target = MemoryTarget(runs_files=runs_files)
    file = RunFile(own_run(config={"max_turns": 2}), (environment() | {"spec": {"openenv": openenv}},))
    assert check_file(file, target) == ((), None)
    assert render_file(with_uid(file, "0a1b2c3d"), target).source is None
    assert codes(RunFile(own_run(config={"max_turn": 2}), file.beside), target) == ["UnknownField"]


def test_an_openenv_image_in_the_file_is_refused_here() -> None:
    file = RunFile(own_run(), (environment() | {"spec": {"openenv": {"image": "registry.test/echo:1"}}},))
    assert codes(file, MemoryTarget(runs_files=True)) == ["EnvironmentNotReady"]
