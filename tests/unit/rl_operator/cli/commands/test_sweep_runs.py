"""`rlctl sweep`: what is shown, written and started, and what is refused before anything is."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.rl_operator.samples import load_run
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.names import EXPERIMENT_LABEL
from rl_operator.cli.commands.sweep_runs import Sweep, as_written, start_runs, sweep
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import OutputKind
from rl_operator.experiments.grid import MOST_RUNS, parse_axis, points_of, runs_of
from rl_operator.local.own_environments import FILE_ANNOTATION
from rl_operator.operator_errors import ForbiddenError, RefusedError
from rl_operator.targets.experiment_runs import stored_rows
from rl_operator.targets.inputs.run_file import RunFile

Call = Callable[..., tuple[int, str, str]]


# --- what is shown and written ---------------------------------------------------------------------------------------
@pytest.fixture
def call_sweep(call_rlctl: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`rlctl sweep` of a file in the working folder."""
    monkeypatch.chdir(tmp_path)
    document = {**run_manifest(spec={"config": {"total_steps": 6}}), "metadata": {"name": "sorting"}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
    return lambda *arguments: call_rlctl("sweep", *arguments, "--local")


GRID = ("--set", "trainer.learning_rate=1e-4,1e-3", "--set", "trainer.seed=0,1")
NAMES = [f"sorting-lr{rate}-seed{seed}" for rate in ("1e-4", "1e-3") for seed in (0, 1)]


@pytest.mark.parametrize("asked", [[], ["--dry-run"]])
def test_without_more_the_grid_is_only_shown(call_sweep: Call, tmp_path: Path, asked: list[str]) -> None:
    code, out, errors = call_sweep("run.yaml", *GRID, *asked)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NAME", "trainer.learning_rate", "trainer.seed"],
        *([name, rate, seed] for name, rate, seed in zip(NAMES, ["0.0001"] * 2 + ["0.001"] * 2, "0101", strict=True)),
    ]
    assert "nothing is started" in errors
    assert not (tmp_path / "state/objects/rltrainingrun").exists()


def test_for_programs(call_sweep: Call) -> None:
    answer = json.loads(call_sweep("run.yaml", *GRID, "--name", "trial", "-o", "json")[1])
    assert answer["target"].startswith("local:")
    assert (answer["experiment"], len(answer["runs"])) == ("trial", 4)
    assert answer["runs"][0] == {
        "name": "trial-lr1e-4-seed0",
        "swept": {"trainer.learning_rate": 1e-4, "trainer.seed": 0},
    }


def test_files_are_written_as_a_person_would(call_sweep: Call, tmp_path: Path) -> None:
    assert call_sweep("run.yaml", *GRID, "--write", "grid")[0] == 0
    files = sorted((tmp_path / "grid").iterdir())
    assert [file.stem for file in files] == sorted(NAMES)
    run = load_run((tmp_path / f"grid/{NAMES[3]}.yaml").read_text())
    assert run.spec.trainer == {"learning_rate": 1e-3, "seed": 1}
    assert run.metadata.labels == {EXPERIMENT_LABEL: "sorting"}
    written = yaml.safe_load((tmp_path / f"grid/{NAMES[3]}.yaml").read_text())
    assert sorted(written["spec"]) == ["config", "environment", "runtime", "trainer"]
    assert "namespace" not in written["metadata"]


def test_files_are_not_overwritten(call_sweep: Call, tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    (tmp_path / f"grid/{NAMES[2]}.yaml").write_text("mine")
    code, _, errors = call_sweep("run.yaml", *GRID, "--write", "grid")
    assert (code, "is there already: nothing is written" in errors) == (2, True)
    assert [file.read_text() for file in (tmp_path / "grid").iterdir()] == ["mine"]


def test_an_environment_of_a_file_is_found_from_the_new_folder(tmp_path: Path) -> None:
    metadata = parsed(run_manifest("mine")).metadata.with_changes(
        annotations={FILE_ANNOTATION: str(tmp_path / "mine.py")}
    )
    run = parsed(run_manifest("mine", spec={"environment": "./mine.py"})).with_changes(metadata=metadata)
    written = as_written(run, tmp_path / "grid", "default")
    assert (tmp_path / "grid" / written["spec"]["environment"]).resolve() == tmp_path / "mine.py"
    assert written["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a sweep needs --set"),
        (["--set", "trainer.seed=1,1"], "has 1 twice"),
        (["--set", f"trainer.seed={','.join(map(str, range(65)))}"], "the grid has 65 runs"),
        (["--set", "trainer.seed=1,2", "--name", "No"], "the experiment's name is 'No'"),
        (["--set", "trainer.seed=1", "--start", "--dry-run"], "one of --start, --write DIR and --dry-run"),
        (["--set", "trainer.seed=1", "--continue"], "--continue is about the start"),
        (["--set", "trainer.seed=1", "--parallel", "2"], "--parallel is about the start"),
        (["--set", "trainer.seed=-1,1", "--start"], "spec.trainer.seed is -1: it must be at least 0 (sorting-seed-1)"),
        (["--set", "config.total_steps=ten,6"], 'spec.config.total_steps is "ten": it must be'),
        (["--set", "config.learning_rate=1e-4", "--write", "grid"], "--set trainer.learning_rate="),
    ],
)
def test_what_is_refused_starts_and_writes_nothing(
    call_sweep: Call, tmp_path: Path, arguments: list[str], said: str
) -> None:
    code, out, errors = call_sweep("run.yaml", *arguments)
    assert (code, out) == (2, "")
    assert said in errors
    assert not (tmp_path / "grid").exists()
    assert not (tmp_path / "state/objects/rltrainingrun").exists()


def test_the_usual_limit_is_the_grids() -> None:
    assert inspect.signature(sweep).parameters["most"].default == MOST_RUNS


def test_refusals_for_programs(call_sweep: Call) -> None:
    code, out, _ = call_sweep("run.yaml", "--set", "trainer.seed=-1,1", "-o", "json")
    (refusal,) = json.loads(out)["refusals"]
    assert (code, refusal["field"], refusal["runs"]) == (2, "spec.trainer.seed", ["sorting-seed-1"])


# --- what is started -------------------------------------------------------------------------------------------------
class Trains(MemoryTarget):
    """A run that is not suspended is over when it is looked at."""

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        made = {
            **manifest,
            "metadata": {**manifest["metadata"], "uid": f"u-{manifest['metadata']['name']}", "resourceVersion": "1"},
        }
        return super().create({**made, "status": {}})

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        run = super().run(namespace, name)
        if run is not None and not run["spec"].get("suspend"):
            run["status"] = {"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z", "message": "Done."}
        return run


def made(*settings: str, experiment: str = "trial") -> Sweep:
    file = RunFile(parsed(run_manifest()))
    points = points_of([parse_axis(each) for each in settings or ("trainer.seed=0,1,2",)])
    return Sweep(experiment, file, points, runs_of(file.run, experiment, points))


def start(target: MemoryTarget, at_once: int | None, given: Sweep | None = None, *, go_on: bool = False) -> CommandExit:
    return start_runs(given or made(), target, at_once, OutputKind.TEXT, go_on=go_on)


def suspended(target: MemoryTarget) -> list[bool]:
    return [bool(run["spec"].get("suspend")) for run in target.objects.values()]


def test_on_a_cluster_all_start_and_the_runtime_decides(capsys: pytest.CaptureFixture[str]) -> None:
    target = MemoryTarget()
    assert start(target, None) == CommandExit.OK
    assert suspended(target) == [False, False, False]
    assert {run["metadata"]["labels"][EXPERIMENT_LABEL] for run in target.objects.values()} == {"trial"}
    shown = capsys.readouterr()
    assert "3 runs are created: trial-seed0, trial-seed1, trial-seed2 (memory)" in shown.err
    assert "rank them: rlctl compare --experiment trial --memory" in shown.out
    assert ("ConfigMap", "default", "experiment-trial") in target.others


def test_on_this_machine_they_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    target = Trains()
    seen: list[list[bool]] = []
    create = target.create

    def watched(manifest: Mapping[str, Any]) -> dict[str, Any]:
        created = create(manifest)
        seen.append(suspended(target))
        return created

    target.create = watched  # type: ignore[method-assign]
    assert start(target, 1) == CommandExit.OK
    assert seen[-1] == [False, True, True]
    assert suspended(target) == [False, False, False]
    shown = capsys.readouterr()
    assert "3 of 3" in shown.err
    assert shown.out.splitlines()[0].split()[:2] == ["NAME", "PHASE"]
    assert {row.phase for row in stored_rows(target.others["ConfigMap", "default", "experiment-trial"])} == {
        "Succeeded"
    }


def test_a_taken_name_is_refused_before_anything_starts() -> None:
    target = MemoryTarget(run_manifest("trial-seed2"))
    with pytest.raises(RefusedError, match=r"run trial-seed2 is there already.*so none is started"):
        start(target, None)
    assert list(target.objects) == [("default", "trial-seed2")]


def test_a_file_of_a_draft_is_not_started() -> None:
    given = made()
    draft = given.file.run.with_changes(spec=given.file.run.spec.with_changes(suspend=True))
    target = MemoryTarget()
    with pytest.raises(RefusedError, match=r"spec\.suspend is true in the file"):
        start(target, None, replace(given, file=replace(given.file, run=draft)))
    assert target.objects == {}


def test_a_table_of_somebody_else_is_refused_before_anything_starts() -> None:
    target = MemoryTarget()
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "experiment-trial"}}
    target.others["ConfigMap", "default", "experiment-trial"] = foreign
    with pytest.raises(RefusedError, match="choose another name for the experiment"):
        start(target, None)
    assert target.objects == {}


def test_an_interrupted_sweep_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target = Trains()

    def interrupted(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rl_operator.cli.commands.sweep_runs.train_all", interrupted)
        assert start(target, 1) == CommandExit.INTERRUPTED
    assert "the same command with --continue goes on" in capsys.readouterr().err
    assert suspended(target) == [False, True, True]
    assert start(target, 1, go_on=True) == CommandExit.OK
    assert suspended(target) == [False, False, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"trainer": {"seed": 9}}}, "spec.trainer.seed is 9 there and 0 here"),
        ({"label": "another"}, "is 'another' instead of 'trial'"),
    ],
)
def test_it_goes_on_with_its_own_runs_only(change: dict[str, Any], said: str) -> None:
    there = run_manifest("trial-seed0", spec=change.get("spec", {"trainer": {"seed": 0}}))
    there["metadata"]["labels"] = {EXPERIMENT_LABEL: change.get("label", "trial")}
    target = MemoryTarget(there)
    with pytest.raises(RefusedError, match="is not the one of this sweep") as refused:
        start(target, None, go_on=True)
    assert said in str(refused.value)
    assert len(target.objects) == 1


def test_how_far_it_came_is_told_if_a_run_is_not_created(capsys: pytest.CaptureFixture[str]) -> None:
    class Full(MemoryTarget):
        def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
            if len(self.objects) == 2:
                raise ForbiddenError("exceeded quota")
            return super().create(manifest)

    target = Full()
    with pytest.raises(ForbiddenError, match="exceeded quota"):
        start(target, None)
    assert "2 of 3 runs are created" in capsys.readouterr().err
    assert len(target.objects) == 2


def test_a_failed_run_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Trains):
        def run(self, namespace: str, name: str) -> dict[str, Any] | None:
            run = super().run(namespace, name)
            if run is not None and run["status"]:
                run["status"]["phase"] = "Failed"
            return run

    assert start(Fails(), 3) == CommandExit.RUN_FAILED
