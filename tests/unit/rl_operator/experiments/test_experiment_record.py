"""The ConfigMap that keeps an experiment's table."""

import json

import pytest
from tests.unit.rl_operator.experiments.rows import row

from rl_operator.experiments import experiment_record
from rl_operator.experiments.experiment_record import (
    MAX_BYTES,
    MAX_ROWS,
    is_record,
    record_config_map,
    stored_rows,
    united,
)

ROWS = (row("b", 0.8, swept={"tinker.seed": 1}, settings={"tinker.seed": 1}), row("a", 0.5))


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
    monkeypatch.setattr(experiment_record, "MAX_ROWS", 3)
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
