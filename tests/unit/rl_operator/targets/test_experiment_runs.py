"""An experiment's runs and the table that outlives them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.rl_operator.experiments.rows import row
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.api.names import EXPERIMENT_LABEL, SWEPT_ANNOTATION
from rl_operator.operator_errors import ConflictError, ForbiddenError, RefusedError
from rl_operator.targets import experiment_runs
from rl_operator.targets.experiment_runs import (
    MAX_BYTES,
    MAX_ROWS,
    is_record,
    keep,
    read_experiment,
    record_config_map,
    require_own_record,
    selector_of,
    stored_rows,
    united,
)

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
