"""An experiment's runs, the table that outlives them, and a sweep that trains a few at a time."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.rl_operator.experiments.rows import row
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.names import EXPERIMENT_LABEL, SWEPT_ANNOTATION
from rl_operator.cli.commands.sweep_runs import print_ends
from rl_operator.experiments.grid import parse_axis, points_of, runs_of
from rl_operator.operator_errors import ConflictError, ForbiddenError, GoneError, RefusedError
from rl_operator.targets import experiment_runs
from rl_operator.targets.experiment_runs import (
    MAX_BYTES,
    MAX_ROWS,
    RefusedRuns,
    check_runs,
    is_record,
    keep,
    read_experiment,
    record_config_map,
    require_own_record,
    selector_of,
    stored_rows,
    train_all,
    united,
)
from rl_operator.targets.inputs.run_file import RunFile
from rl_operator.targets.target import Target

ROWS = (row("b", 0.8, swept={"trainer.seed": 1}, settings={"trainer.seed": 1}), row("a", 0.5))


def test_what_is_stored_is_read_back() -> None:
    config_map = record_config_map("trial", "team-a", ROWS, version="7")
    assert (config_map["metadata"]["name"], config_map["metadata"]["resourceVersion"]) == ("experiment-trial", "7")
    assert is_record(config_map, "trial")
    assert sorted(stored_rows(config_map), key=lambda each: each.name) == [
        ROWS[1],
        ROWS[0].with_changes(settings={}),
    ]


@pytest.mark.parametrize(
    "labels", [None, {}, {"rl-operator.dev/experiment": "another"}, {"rl-operator.dev/experiment": "trial"}]
)
def test_a_config_map_without_our_labels_is_not_ours(labels: dict[str, str] | None) -> None:
    assert not is_record({"metadata": {"labels": labels}}, "trial")


def test_runs_that_are_gone_stay_and_are_marked() -> None:
    again = row("a", 0.9, uid="uid-new")
    found = united([again], stored_rows(record_config_map("trial", "team-a", ROWS)))
    assert {(each.name, each.uid, each.gone) for each in found} == {
        ("a", "uid-new", False),
        ("a", "uid-a", True),
        ("b", "uid-b", True),
    }


def test_that_it_is_gone_is_not_stored() -> None:
    config_map = record_config_map("trial", "team-a", [ROWS[0].with_changes(gone=True)])
    assert [each.gone for each in stored_rows(config_map)] == [False]


@pytest.mark.parametrize("text", ["", "{", "{}", "[1, null]", '[{"name": "Not A Name"}]', '[{"phase": "Succeeded"}]'])
def test_what_is_damaged_is_left_out(text: str) -> None:
    assert stored_rows({"data": {"runs.json": text}}) == ()
    assert stored_rows({}) == ()


def test_a_row_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = json.dumps([{**ROWS[1].kept, "tokens": 12}])
    assert stored_rows({"data": {"runs.json": newer}}) == (ROWS[1],)


def test_the_oldest_of_those_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_runs, "MAX_ROWS", 3)
    rows = [row(f"r{at}", created=f"2026-01-0{at + 1}T00:00:00Z", gone=at > 0) for at in range(5)]
    kept = stored_rows(record_config_map("trial", "team-a", rows))
    assert [each.name for each in kept] == ["r0", "r4", "r3"]


def test_it_fits_into_a_config_map() -> None:
    rows = [
        row(f"r{at}", 0.5, message="ö" * 500, swept={f"config.f{n}": "x" * 100 for n in range(9)}) for at in range(1200)
    ]
    config_map = record_config_map("trial", "team-a", rows)
    assert len(config_map["data"]["runs.json"].encode()) <= MAX_BYTES + 10
    assert 400 < len(stored_rows(config_map)) <= MAX_ROWS


KEY = ("ConfigMap", "default", "experiment-trial")


def member(name: str, accuracy: float, experiment: str = "trial") -> dict[str, Any]:
    manifest = run_manifest(name, phase="Succeeded", metrics={"heldOut": {"value": accuracy}})
    manifest["metadata"] |= {
        "uid": f"uid-{name}",
        "labels": {EXPERIMENT_LABEL: experiment},
        "annotations": {SWEPT_ANNOTATION: json.dumps({"trainer.seed": 1})},
    }
    return manifest


def test_the_runs_with_its_label_are_read() -> None:
    target = MemoryTarget(member("a", 0.5), member("b", 0.6, "another"), run_manifest("c"))
    found = read_experiment(target, "default", "trial")
    assert [(row.name, row.swept) for row in found.rows] == [("a", {"trainer.seed": 1})]
    assert target.looked_after == ["default/a"]


def test_a_run_that_was_deleted_stays_in_the_table() -> None:
    target = MemoryTarget(member("a", 0.5), member("b", 0.6))
    assert keep(target, read_experiment(target, "default", "trial")) == ""
    target.delete("default", "a")
    found = read_experiment(target, "default", "trial")
    assert {row.name: row.gone for row in found.rows} == {"a": True, "b": False}
    target.delete("default", "b")
    assert keep(target, found) == ""
    assert len(read_experiment(target, "default", "trial").rows) == 2


def test_what_another_stored_meanwhile_is_kept() -> None:
    target = MemoryTarget(member("a", 0.5))
    seen = read_experiment(target, "default", "trial")
    other = MemoryTarget(member("b", 0.6))
    other.others = target.others
    keep(other, read_experiment(other, "default", "trial"))
    keep(target, seen)
    assert {row.name for row in stored_rows(target.others[KEY])} == {"a", "b"}


def test_a_table_that_says_nothing_new_is_not_written() -> None:
    target = MemoryTarget(member("a", 0.5))
    keep(target, read_experiment(target, "default", "trial"))
    before = target.others[KEY]
    keep(target, read_experiment(target, "default", "trial"))
    assert target.others[KEY] is before


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"no experiment 'trial'.*rl-operator.dev/experiment=trial"):
        read_experiment(MemoryTarget(), "default", "trial")


def test_a_config_map_of_somebody_else_is_left_alone() -> None:
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KEY[2]}, "data": {"runs.json": "mine"}}
    target = MemoryTarget(member("a", 0.5))
    target.others[KEY] = foreign
    with pytest.raises(RefusedError, match="is not the table of an experiment"):
        require_own_record(target, "default", "trial")
    found = read_experiment(target, "default", "trial")
    assert [row.name for row in found.rows] == ["a"]
    assert "the table is not kept" in keep(target, found)
    assert target.others[KEY] is foreign


class Closed(MemoryTarget):
    """The caller may read runs, and no ConfigMap."""

    def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        raise ForbiddenError(f"you may not get {kind} {namespace}/{name}")


def test_without_the_right_to_store_it_that_is_said_and_nothing_fails() -> None:
    target = Closed(member("a", 0.5))
    found = read_experiment(target, "default", "trial")
    assert [row.name for row in found.rows] == ["a"]
    assert keep(target, found).startswith("the table is not kept, so it ends with its runs: you may not")
    assert target.notes == ["only runs that exist are shown: you may not get ConfigMap default/experiment-trial"]


def test_a_conflict_is_tried_again_and_then_told() -> None:
    class Busy(MemoryTarget):
        conflicts = 1

        def apply(self, manifest: Mapping[str, Any]) -> None:
            if self.conflicts:
                self.conflicts -= 1
                raise ConflictError("somebody else was faster")
            super().apply(manifest)

    target = Busy(member("a", 0.5))
    assert keep(target, read_experiment(target, "default", "trial")) == ""
    assert KEY in target.others
    target.objects["default", "a"] = member("a", 0.7)
    target.conflicts = 99
    assert "somebody else was faster" in keep(target, read_experiment(target, "default", "trial"))


@pytest.mark.parametrize("name", ["", "Upper", "x" * 53, "a/b", "../x", "1st"])
def test_what_cannot_be_in_a_label_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="the experiment's name is"):
        selector_of(name)


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
