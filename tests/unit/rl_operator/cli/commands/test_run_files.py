"""What `rlctl diff` finds, and its exit codes."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import frozen
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.commands.run_files import compare
from rl_operator.targets.inputs.file_inputs import render_file
from rl_operator.targets.inputs.run_file import RunFile, with_uid

STARTED = {"startTime": "2026-01-01T00:00:00Z", "phase": "Running", "configMapName": "sorting-1"}


def given(**spec: Any) -> RunFile:
    return RunFile(parsed(run_manifest(spec=spec)))


def live(**spec: Any) -> dict[str, Any]:
    manifest = run_manifest(spec=spec)
    manifest["metadata"]["uid"] = "0a1b2c3d"
    return manifest


def test_a_new_run() -> None:
    found = compare(given(), MemoryTarget())
    assert (found.new, found.exit_code) == (True, 1)
    assert compare(given(runtime="gone"), MemoryTarget()).exit_code == 2


def test_no_difference() -> None:
    found = compare(given(config={"group_size": 4}), MemoryTarget(live(config={"group_size": 4.0})))
    assert (found.fields, found.texts, found.exit_code) == ((), (), 0)


def test_a_run_that_has_not_started_accepts_it() -> None:
    found = compare(given(config={"group_size": 4}), MemoryTarget(live()))
    assert [(c.field, c.before, c.after) for c in found.fields] == [("spec.config.group_size", "unset", "4")]
    assert found.exit_code == 1


@pytest.mark.parametrize(("spec", "code"), [({"config": {"group_size": 4}}, 2), ({"suspend": True}, 1), ({}, 0)])
def test_a_started_run_accepts_what_is_not_frozen(spec: dict[str, Any], code: int) -> None:
    started = live() | {"status": {"observedGeneration": 1, **STARTED}}
    found = compare(given(**spec), MemoryTarget(started))
    assert found.exit_code == code
    assert [refusal.code for refusal in found.refusals] == (["FrozenField"] if code == 2 else [])


def test_the_rendered_config_is_compared_with_the_live_one() -> None:
    draft = live(config={"group_size": 8})
    rendered = render_file(with_uid(given(config={"group_size": 8}), "0a1b2c3d"), MemoryTarget()).config_map
    config_map = frozen(draft, rendered["data"])
    target = MemoryTarget(draft)
    target.apply(config_map)
    assert compare(given(config={"group_size": 8}), target).texts == ()
    changed = compare(given(config={"group_size": 4}), target).texts
    assert "-  group_size: 8" in changed
    assert "+  group_size: 4" in changed


def test_files_next_to_the_run_are_compared_one_by_one() -> None:
    target, metadata = MemoryTarget(live()), {"name": "code", "namespace": "default"}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a.py": "x = 1\n"}}
    file = RunFile(given().run, ({**code, "data": {"a.py": "x = 2\n"}},))
    assert "+x = 2" in compare(file, target).texts
    target.apply(code)
    assert {"-x = 1", "+x = 2"} <= set(compare(file, target).texts)
    assert compare(RunFile(given().run, (code,)), target).exit_code == 0
