import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, GoneError, InvalidError, NameTakenError, TargetUnreachableError


def an_object(kind: str = "RLTrainingRun", name: str = "run", **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "default", "name": name, **metadata}, "spec": {"step": 1}}


def test_a_created_object_has_what_the_server_adds(store: StateStore) -> None:
    created = store.create(an_object())
    assert store.get("RLTrainingRun", "default", "run") == created
    assert created["metadata"]["resourceVersion"] == "1"
    assert created["metadata"]["generation"] == 1
    assert created["metadata"]["uid"]
    assert created["metadata"]["creationTimestamp"].endswith("Z")


def test_what_it_holds_is_its_users_alone(tmp_path: Path) -> None:
    """A pod holds the token of its trainer's ops port. A folder that was there before stays as its user made it."""
    fresh, shared = tmp_path / "fresh" / "state", tmp_path / "shared"
    shared.mkdir()
    before = shared.stat().st_mode
    for root in (fresh, shared):
        store = StateStore(Layout(root))
        store.create(an_object("Pod"))
        store.update("Pod", "default", "run", lambda pod: pod["spec"].update(step=2))
        [file] = (root / "objects" / "pod").rglob("*.json")
        assert file.stat().st_mode & 0o777 == 0o600
    assert fresh.stat().st_mode & 0o777 == 0o700
    assert shared.stat().st_mode == before


def test_a_name_is_taken_once(store: StateStore) -> None:
    store.create(an_object())
    with pytest.raises(NameTakenError, match="default/run is there already"):
        store.create(an_object())


@pytest.mark.parametrize(
    ("namespace", "name"), [("default", ".."), ("default", "../default/run"), ("..", "run"), ("*", "run"), ("a/b", "c")]
)
def test_an_impossible_name_leads_to_no_file(store: StateStore, namespace: str, name: str) -> None:
    store.create(an_object())
    assert store.get("RLTrainingRun", namespace, name) is None
    assert store.version("RLTrainingRun", namespace, name) is None
    with pytest.raises(InvalidError, match="can be called"):
        store.create(an_object() | {"metadata": {"namespace": namespace, "name": name}})
    with pytest.raises(GoneError):
        store.delete("RLTrainingRun", namespace, name)


@pytest.mark.parametrize("namespace", ["*", "..", "?efault"])
def test_an_impossible_namespace_lists_nothing(store: StateStore, namespace: str) -> None:
    store.create(an_object())
    assert list(store.list_all("RLTrainingRun", namespace)) == []


@pytest.mark.parametrize(
    ("change", "version", "generation"),
    [
        pytest.param({"spec": {"step": 2}}, "2", 2, id="spec"),
        pytest.param({"status": {"phase": "Running"}}, "2", 1, id="status"),
        pytest.param({"spec": {"step": 1}}, "1", 1, id="nothing"),
    ],
)
def test_the_effects_of_a_write(store: StateStore, change: dict[str, Any], version: str, generation: int) -> None:
    store.create(an_object())
    updated = store.update("RLTrainingRun", "default", "run", lambda manifest: manifest.update(change))
    assert (updated["metadata"]["resourceVersion"], updated["metadata"]["generation"]) == (version, generation)
    assert store.get("RLTrainingRun", "default", "run") == updated


def test_a_write_against_an_old_version_is_refused(store: StateStore) -> None:
    old = store.create(an_object())["metadata"]["resourceVersion"]
    store.update("RLTrainingRun", "default", "run", lambda manifest: manifest.update(status={"phase": "Running"}))
    with pytest.raises(ConflictError):
        store.update("RLTrainingRun", "default", "run", lambda manifest: manifest.update(spec={}), resource_version=old)


def test_a_uid_distinguishes_objects_of_the_same_name(store: StateStore) -> None:
    uid = store.create(an_object())["metadata"]["uid"]
    store.delete("RLTrainingRun", "default", "run")
    store.create(an_object())
    with pytest.raises(GoneError):
        store.delete("RLTrainingRun", "default", "run", uid=uid)
    with pytest.raises(GoneError):
        store.update("RLTrainingRun", "default", "run", lambda manifest: manifest.update(spec={}), uid=uid)


def test_finalizers_hold_an_object_until_the_last_is_removed(store: StateStore) -> None:
    store.create(an_object(finalizers=["a", "b"]))
    store.delete("RLTrainingRun", "default", "run")
    marked = store.get("RLTrainingRun", "default", "run")
    assert marked is not None
    assert "deletionTimestamp" in marked["metadata"]
    for left in (["b"], []):
        assert store.get("RLTrainingRun", "default", "run") is not None
        store.update("RLTrainingRun", "default", "run", lambda m, left=left: m["metadata"].update(finalizers=left))
    assert store.get("RLTrainingRun", "default", "run") is None


def test_children_are_deleted_with_their_owner(store: StateStore) -> None:
    uid = store.create(an_object())["metadata"]["uid"]
    owner = [{"uid": uid, "name": "run", "controller": True}]
    for kind in ("ConfigMap", "Service", "NetworkPolicy"):
        store.create(an_object(kind, "child", ownerReferences=owner))
    store.create(an_object("Pod", "held", ownerReferences=owner, finalizers=["x"]))
    store.create(an_object("Pod", "stranger", ownerReferences=[{"uid": "other", "name": "run"}]))
    store.delete("RLTrainingRun", "default", "run")
    assert not any(store.get(kind, "default", "child") for kind in ("ConfigMap", "Service", "NetworkPolicy"))
    held, stranger = store.get("Pod", "default", "held"), store.get("Pod", "default", "stranger")
    assert held is not None
    assert "deletionTimestamp" in held["metadata"]
    assert stranger is not None
    assert "deletionTimestamp" not in stranger["metadata"]


def test_listing_is_by_namespace_and_prefix(store: StateStore) -> None:
    for name in ("a-1", "a-2", "b-1"):
        store.create(an_object("Pod", name))
    assert [m["metadata"]["name"] for m in store.list_all("Pod", "default")] == ["a-1", "a-2", "b-1"]
    assert [m["metadata"]["name"] for m in store.list_all("Pod", None, prefix="a-")] == ["a-1", "a-2"]
    assert list(store.list_all("Pod", "elsewhere")) == []


def test_the_version_changes_with_every_write(store: StateStore) -> None:
    assert store.version("RLTrainingRun", "default", "run") is None
    store.create(an_object())
    seen = {store.version("RLTrainingRun", "default", "run")}
    for step in range(2, 6):
        store.update("RLTrainingRun", "default", "run", lambda m, step=step: m["spec"].update(step=step))
        seen.add(store.version("RLTrainingRun", "default", "run"))
    assert len(seen) == 5


@pytest.mark.process
def test_two_processes_lose_no_updates(store: StateStore) -> None:
    store.create(an_object())
    root = store.layout.root
    writers = [multiprocessing.get_context("spawn").Process(target=_count_to, args=(root, 50)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    final = store.get("RLTrainingRun", "default", "run")
    assert final is not None
    assert final["spec"]["step"] == 101
    assert final["metadata"]["resourceVersion"] == "101"


def test_an_unwritable_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = StateStore(Layout(tmp_path / "file"))
    with pytest.raises(TargetUnreachableError, match="set RL_STATE_DIR to another folder"):
        store.create(an_object())


def test_a_broken_object_is_named(store: StateStore) -> None:
    store.create(an_object())
    path = next(store.layout.objects.rglob("run.json"))
    path.write_text("{")
    with pytest.raises(TargetUnreachableError, match=r"cannot read .*run\.json"):
        store.get("RLTrainingRun", "default", "run")


def _count_to(root: Path, times: int) -> None:
    store = StateStore(Layout(root))
    for _ in range(times):
        store.update("RLTrainingRun", "default", "run", lambda m: m["spec"].update(step=m["spec"]["step"] + 1))


CODE = {
    "kind": "ConfigMap",
    "metadata": {"namespace": "default", "name": "code", "labels": {"a": "b"}},
    "data": {"x.py": "1"},
}


def test_applying_creates_and_then_replaces(store: StateStore) -> None:
    created = store.apply(CODE)
    again = store.apply(CODE)
    assert again["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    changed = store.apply(
        {"kind": "ConfigMap", "metadata": {"namespace": "default", "name": "code"}, "binaryData": {"y": "eA=="}}
    )
    assert "data" not in changed
    assert changed["binaryData"] == {"y": "eA=="}
    assert changed["metadata"]["labels"] == {}
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]


def test_objects_owned_by_a_run_are_not_replaced(store: StateStore) -> None:
    store.create({**CODE, "metadata": {**CODE["metadata"], "ownerReferences": [{"uid": "u"}]}})
    with pytest.raises(NameTakenError, match="belongs to a run"):
        store.apply(CODE)


def test_an_interrupted_removal_can_be_requested_again(store: StateStore) -> None:
    """A full disk may refuse to mark a child for deletion: the run must remain so that it can be deleted."""
    owner = [{"uid": store.create(an_object())["metadata"]["uid"]}]
    store.create(an_object("Pod", "run-1", ownerReferences=owner, finalizers=["keep"]))
    in_the_way = next(store.layout.objects.rglob("run-1.json")).with_suffix(".tmp")
    in_the_way.mkdir()
    with pytest.raises(TargetUnreachableError, match="free some space"):
        store.delete("RLTrainingRun", "default", "run")
    in_the_way.rmdir()
    store.delete("RLTrainingRun", "default", "run")
    assert store.get("RLTrainingRun", "default", "run") is None
    assert "deletionTimestamp" in next(store.list_all("Pod"))["metadata"]
