"""The state folder as a target: what a draft needs, what its start needs, and that no supervisor keeps running."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import run_manifest, without_the_service
from tests.unit.rl_operator.tools.contexts import Unattended

from rl_operator.api.names import RUN_KIND
from rl_operator.documents.parse import parse_stored_run
from rl_operator.local.own_environments import FILE_ANNOTATION
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import is_held
from rl_operator.local.state.pod_logs import Event, append_event
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, RefusedError
from rl_operator.targets import local_needs
from rl_operator.targets.local_target import LocalTarget

SETTLED_SECONDS = 60.0
"""One, on a machine that is not busy."""


def draft(**spec: Any) -> dict[str, Any]:
    document = run_manifest(spec={"suspend": True, **spec})
    return {**document, "metadata": {"name": "sorting", "namespace": "default"}, "status": {}}


@pytest.fixture
def unattended_target(tmp_path: Path) -> Unattended:
    return Unattended(Layout(tmp_path), "", print)


def test_a_spec_is_changed_as_by_the_api_server(unattended_target: Unattended) -> None:
    unattended_target.create(draft(config={"group_size": 4, "batch_size": 8}, wandb={"tags": ["a", "b"]}))
    changes = {"config": {"group_size": None, "total_steps": 5}, "wandb": {"tags": ["c"]}, "priority": 1}
    changed = unattended_target.change_spec("default", "sorting", changes, {"note": "n"})
    assert changed["spec"]["config"] == {"batch_size": 8, "total_steps": 5}
    assert (changed["spec"]["wandb"], changed["spec"]["priority"]) == ({"tags": ["c"]}, 1)
    assert changed["metadata"]["annotations"] == {"note": "n"}
    again = unattended_target.change_spec("default", "sorting", {"priority": None}, {"note": None})
    assert ("priority" in again["spec"], again["metadata"]["annotations"]) == (False, {})


def test_changing_another_version_is_a_conflict(unattended_target: Unattended) -> None:
    version = unattended_target.create(draft())["metadata"]["resourceVersion"]
    unattended_target.change_spec("default", "sorting", {"priority": 1}, version=version)
    with pytest.raises(ConflictError, match="changed by someone else"):
        unattended_target.change_spec("default", "sorting", {"priority": 2}, version=version)


def test_only_the_start_needs_the_key(unattended_target: Unattended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    unattended_target.create(draft(runtime="default"))
    unattended_target.change_spec("default", "sorting", {"config": {"group_size": 4}})
    for start in ({"suspend": False}, {"suspend": None}):
        with pytest.raises(RefusedError, match="TINKER_API_KEY is not set"):
            unattended_target.change_spec("default", "sorting", start)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    assert unattended_target.change_spec("default", "sorting", {"suspend": False})["spec"]["suspend"] is False


def test_without_the_tinker_service_the_small_model_is_refused_before_its_start(
    unattended_target: Unattended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setattr(local_needs, "find_program", without_the_service)
    unattended_target.create(draft())
    with pytest.raises(RefusedError, match=r"program tinker-service is missing: .* pip install .*tinker-service"):
        unattended_target.change_spec("default", "sorting", {"suspend": False})
    with pytest.raises(RefusedError, match="tinker-service is missing"):
        unattended_target.create(draft(suspend=False))
    remote = draft(runtime="default", suspend=False)
    unattended_target.create({**remote, "metadata": {**remote["metadata"], "name": "remote"}})
    assert unattended_target.missing_programs("default") == ()


@pytest.mark.process
def test_the_supervisor_of_a_draft_ends(tmp_path: Path) -> None:
    target = LocalTarget(Layout(tmp_path), "", print)
    target.create(draft())
    deadline = time.monotonic() + SETTLED_SECONDS
    while target.run("default", "sorting")["status"].get("phase") != "Draft":
        assert time.monotonic() < deadline, f"the draft is not looked at: {target.run('default', 'sorting')}"
        time.sleep(0.05)
    while is_held(Layout(tmp_path).supervisor_lock("default", "sorting")):
        assert time.monotonic() < deadline, "the supervisor of a draft goes on"
        time.sleep(0.05)


def test_without_its_packages_a_file_is_refused_before_its_start(unattended_target: Unattended, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    document = draft(environment="./mine.py", runtime="tiny")
    document["metadata"]["annotations"] = {FILE_ANNOTATION: str(file)}
    (tmp_path / "requirements.txt").write_text("numpy\n")
    created = unattended_target.create(document)
    with pytest.raises(RefusedError, match=f"of requirements.txt are missing: .*rlctl environments install {file}"):
        unattended_target.change_spec("default", "sorting", {"suspend": False})
    [missing] = unattended_target.missing_packages(parse_stored_run(created))
    assert (missing.what, missing.needed) == ("packages", True)
    (tmp_path / "requirements.txt").unlink()
    assert unattended_target.missing_packages(parse_stored_run(created)) == ()
    unattended_target.change_spec("default", "sorting", {"suspend": False})


def test_events_of_a_deleted_run_are_not_those_of_the_next_one_of_its_name(
    unattended_target: Unattended, tmp_path: Path
) -> None:
    """Their log outlives a deletion that is interrupted."""
    uids = []
    for reason in ("Old", "New"):
        run = unattended_target.create(draft())
        uids.append(run["metadata"]["uid"])
        event = Event("2026-01-01T00:00:00Z", "Normal", reason, "It is.", uids[-1])
        append_event(Layout(tmp_path).events("default", "sorting"), event)
        StateStore(Layout(tmp_path)).delete(RUN_KIND, "default", "sorting")
    assert ["New" in line for line in unattended_target.events("default", "sorting", uids[-1])] == [True]


def test_versions_change_with_every_write_and_nothing_is_read(unattended_target: Unattended, tmp_path: Path) -> None:
    assert unattended_target.run_versions(None) == {}
    unattended_target.create(draft())
    before = unattended_target.run_versions(None)
    assert set(before) == {("default", "sorting")}
    assert unattended_target.run_versions(None) == unattended_target.run_versions("default") == before
    assert unattended_target.run_versions("other") == unattended_target.run_versions("../default") == {}
    unattended_target.change_spec("default", "sorting", {"maxRuntimeSeconds": 60})
    assert unattended_target.run_versions(None) != before
    [path] = (tmp_path / "objects").glob("rltrainingrun/default/*.json")
    path.write_text("no JSON", encoding="utf-8")
    assert set(unattended_target.run_versions(None)) == {("default", "sorting")}


@pytest.mark.parametrize(
    ("place", "why"), [("x" * 300, "File name too long"), ("file", "it is not a folder")], ids=["name", "file"]
)
def test_a_state_folder_that_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, place: str, why: str) -> None:
    """A forbidden one gives another error of the same kind; to root nothing is forbidden."""
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match=rf"{why}; .*RL_STATE_DIR"):
        LocalTarget.open(tmp_path / place, print, asked=True)
