"""The runs of a sweep, a few at a time."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.commands.sweep_runs import print_ends
from rl_operator.experiments.grid import parse_axis, points_of, runs_of
from rl_operator.operator_errors import GoneError
from rl_operator.targets.inputs.run_file import RunFile
from rl_operator.targets.sweep_training import RefusedRuns, check_runs, train_all
from rl_operator.targets.target import Target


def checked(*settings: str, target: MemoryTarget | None = None) -> tuple[RefusedRuns, ...]:
    file = RunFile(parsed(run_manifest()))
    runs = runs_of(file.run, "trial", points_of([parse_axis(each) for each in settings]))
    return check_runs(file, runs, target or MemoryTarget())


def test_a_grid_without_faults() -> None:
    assert checked("trainer.learning_rate=1e-4,1e-3", "trainer.seed=0,1") == ()


def test_a_fault_is_told_once_with_the_runs_that_have_it() -> None:
    (found,) = checked("trainer.learning_rate=1e-4,30", "trainer.seed=0,1,2")
    assert found.names == ("trial-lr30-seed0", "trial-lr30-seed1", "trial-lr30-seed2")
    assert found.sentence == "spec.trainer.learning_rate is 30: it must be at most 1 (trial-lr30-seed0 and 2 more)"


def test_a_field_of_the_trainer_in_the_config_is_pointed_out() -> None:
    (found,) = checked("config.learning_rate=1e-4")
    assert "learning_rate is the trainer's: --set trainer.learning_rate=… (trial-1)" in found.sentence


def test_runtimes_and_environments_are_swept_like_any_field() -> None:
    assert checked("environment=sort_digits,gsm_synthetic") == ()
    found = checked("runtime=tiny,tony", "environment=sort_digits,sort_digit")
    assert sorted(each.refusal.code for each in found) == ["RuntimeNotFound", "UnknownEnvironment"]


def test_what_runs_are_checked_against_is_read_once() -> None:
    class Counting(MemoryTarget):
        catalogs = 0

        def catalog(self, runtime):  # type: ignore[no-untyped-def]
            self.catalogs += 1
            return super().catalog(runtime)

    target = Counting()
    assert checked("trainer.seed=0,1,2,3", target=target) == ()
    assert target.catalogs == 1


STARTED = {"startTime": "2026-01-01T00:00:00Z"}


def follow_all(target: Target, namespace: str, names: Sequence[str], at_once: int) -> bool:
    """As `rlctl sweep --start` does."""
    return train_all(target, namespace, names, at_once, print_ends(len(names)))


class Trains(MemoryTarget):
    """A run that was started is over after it was read `reads` times; `ends` says how, by name."""

    def __init__(self, *runs: dict[str, Any], reads: int = 3, **ends: str) -> None:
        super().__init__(*runs)
        self.reads_left = {run["metadata"]["name"]: reads for run in runs}
        self.ends = ends
        self.most_at_once = 0

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        run = super().run(namespace, name)
        if run is None or run["spec"].get("suspend") or run["status"].get("phase"):
            return run
        self.most_at_once = max(self.most_at_once, sum(not r["spec"].get("suspend") for r in self._open()))
        self.reads_left[name] -= 1
        if not self.reads_left[name]:
            run["status"] = {**STARTED, "phase": self.ends.get(name, "Succeeded"), "message": "That is all."}
        return run

    def _open(self) -> list[dict[str, Any]]:
        return [run for run in self.objects.values() if not run["status"].get("phase")]


def runs(*names: str, drafts: int) -> list[dict[str, Any]]:
    begun = len(names) - drafts
    made = [run_manifest(name, spec={"suspend": at >= begun}) for at, name in enumerate(names)]
    for run in made:
        run["status"] = {}
    return made


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_no_more_than_that_train_at_once(at_once: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a", "b", "c", "d")
    target = Trains(*runs(*names, drafts=4 - at_once))
    assert not follow_all(target, "default", names, at_once)
    assert target.most_at_once == at_once
    said = capsys.readouterr().err
    assert said.count("Succeeded: That is all.") == 4
    assert "4 of 4" in said


def test_a_failed_one_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    target = Trains(*runs("a", "b", drafts=1), a="Failed")
    assert follow_all(target, "default", ["a", "b"], 1)
    assert "1 of 2  a  Failed: That is all." in capsys.readouterr().err


def test_one_that_was_deleted_counts_as_over(capsys: pytest.CaptureFixture[str]) -> None:
    target = Trains(*runs("a", drafts=0))
    assert follow_all(target, "default", ["a", "gone"], 1)
    assert "gone  was deleted" in capsys.readouterr().err


def test_a_draft_that_was_deleted_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    class Loses(Trains):
        def change_spec(self, namespace: str, name: str, *arguments: Any, **more: Any) -> dict[str, Any]:
            if name == "b":
                del self.objects[namespace, name]
                raise GoneError(f"there is no run {name}")
            return super().change_spec(namespace, name, *arguments, **more)

    target = Loses(*runs("a", "b", "c", drafts=2))
    assert follow_all(target, "default", ["a", "b", "c"], 1)
    said = capsys.readouterr().err
    assert "2 of 3  b  was deleted" in said
    assert "3 of 3  c  Succeeded" in said


def test_a_message_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    failed = run_manifest("a", phase="Failed", message="no\x1b[2J\nway", **STARTED)
    assert follow_all(MemoryTarget(failed), "default", ["a"], 1)
    assert capsys.readouterr().err.splitlines() == ["1 of 1  a  Failed: no way"]


def test_the_held_out_figure_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"heldOut": {"value": 0.9, "low": 0.8, "high": 0.95}}
    over = run_manifest("a", phase="Succeeded", metrics=metrics, **STARTED)
    assert not follow_all(MemoryTarget(over), "default", ["a"], 1)
    assert capsys.readouterr().err == "1 of 1  a  Succeeded  held-out 0.900 [0.800, 0.950]\n"


def test_one_that_somebody_stopped_is_not_started_again() -> None:
    stopped = run_manifest("a", spec={"suspend": True}, phase="Stopped", **STARTED)
    target = MemoryTarget(stopped)
    assert not follow_all(target, "default", ["a"], 1)
    assert target.objects["default", "a"]["spec"]["suspend"] is True
