"""The cache never goes back, whatever arrives late."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cluster.cache.resource_cache import ResourceCache

RUN = ("ns", "sorting")


def document(name: str = "p", version: int = 1, uid: str = "u", run: str | None = "sorting") -> dict[str, Any]:
    labels = {"run": run} if run else {}
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    }


def run_of(found: dict[str, Any]) -> tuple[str, str] | None:
    name = found["metadata"]["labels"].get("run")
    return ("ns", name) if name else None


def make_store() -> ResourceCache[Any, str]:
    return ResourceCache(lambda found: f"{found['metadata']['name']}@{found['metadata']['resourceVersion']}", run_of)


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store = make_store()
    assert store.put(document(version=5))
    assert not store.put(document(version=4))
    assert not store.put(document(version=5))
    assert store.get(("ns", "p")) == "p@5"


def test_the_event_of_an_own_write_is_reported_once() -> None:
    """Waits without a timer rely on it: a reconcile's own write must trigger the next reconcile."""
    store = make_store()
    store.put(document(version=1))
    store.put_answer(document(version=2))
    assert store.get(("ns", "p")) == "p@2"
    assert store.put(document(version=2))
    assert not store.put(document(version=2))


def test_what_an_answer_left_out_comes_with_the_event() -> None:
    store = ResourceCache(lambda found: found.get("status"), run_of)
    metadata = document(version=2)["metadata"]
    store.put_answer({"kind": "PartialObjectMetadata", "metadata": metadata})
    assert store.get(("ns", "p")) is None
    assert store.put({"kind": "Pod", "metadata": metadata, "status": "gated"})
    assert store.get(("ns", "p")) == "gated"
    assert not store.put({"kind": "Pod", "metadata": metadata, "status": "gated"})


def test_an_answer_after_the_deletion_makes_no_ghost() -> None:
    store = make_store()
    store.put(document(version=1))
    store.remove(document(version=3))
    store.watched(3)
    store.put_answer(document(version=2))
    assert store.get(("ns", "p")) is None


def test_an_event_after_a_list_without_its_object_makes_no_ghost() -> None:
    """A watch that is behind reports what a list has already swept."""
    store = make_store()
    store.put(document(version=1))
    store.sweep(set(), 8)
    assert not store.put(document(version=5))
    assert store.get(("ns", "p")) is None
    assert store.put(document(version=9, uid="again"))


def test_an_answer_ahead_of_the_watch_counts() -> None:
    store = make_store()
    store.watched(3)
    store.put_answer(document(version=4))
    assert store.of_run(RUN) == ("p@4",)


def test_deleting_an_old_object_leaves_its_successor() -> None:
    store = make_store()
    store.put(document(version=7, uid="new"))
    assert not store.remove(document(version=6, uid="old"))
    store.forget(("ns", "p"), "old")
    assert store.get(("ns", "p")) == "p@7"
    store.forget(("ns", "p"), "new")
    assert store.get(("ns", "p")) is None


def test_a_sweep_removes_unlisted_objects_but_spares_newer_ones() -> None:
    store = make_store()
    store.put(document("listed", version=1))
    store.put(document("vanished", version=2))
    store.put_answer(document("just-created", version=11))
    gone = store.sweep({("ns", "listed")}, 10)
    assert gone == (RUN,)
    assert sorted(store) == ["just-created@11", "listed@1"]


def test_an_object_that_moves_to_another_run_leaves_the_first() -> None:
    store = make_store()
    store.put(document(version=1, run="a"))
    store.put(document(version=2, run="b"))
    assert store.of_run(("ns", "a")) == ()
    assert store.of_run(("ns", "b")) == ("p@2",)
    assert store.runs() == (("ns", "b"),)


def test_unreadable_objects_are_skipped_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    def picky(found: dict[str, Any]) -> str:
        return str(found["spec"])

    store = ResourceCache(picky, run_of)
    assert not store.put(document())
    assert len(store) == 0
    assert "ns/p (version 1) cannot be read" in caplog.text


EVENTS = st.lists(
    st.tuples(st.sampled_from(["put", "answer", "remove"]), st.sampled_from("xy"), st.sampled_from(["a", "b", None])),
    max_size=30,
)


@given(EVENTS)
def test_the_index_by_run_always_agrees_with_the_objects(events: list[tuple[str, str, str | None]]) -> None:
    store: ResourceCache[Any, tuple[str, str | None]] = ResourceCache(
        lambda found: (found["metadata"]["name"], found["metadata"]["labels"].get("run")), run_of
    )
    actions = {"put": store.put, "answer": store.put_answer, "remove": store.remove}
    for version, (action, name, run) in enumerate(events, start=1):
        actions[action](document(name, version, run=run))
    for run in ("a", "b"):
        assert list(store.of_run(("ns", run))) == sorted(value for value in store if value[1] == run)
