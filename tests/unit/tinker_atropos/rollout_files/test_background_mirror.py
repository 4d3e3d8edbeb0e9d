"""Copying to a store that is slow, away or broken: nobody waits, and what is possible arrives."""

import contextlib
import threading
import time
from collections.abc import Mapping

import pytest

from tinker_atropos.rollout_files.rollout_store import BackgroundMirror, StoreError

HANG = 60.0
"""Seconds; only ends a hang."""


class Folder:
    """The trainer's own, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self) -> Mapping[str, int]:
        return {name: len(content) for name, content in self.files.items()}

    def read(self, name: str) -> bytes:
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(name) from None


class Store(Folder):
    """`open` it, or its calls wait; `broken` is the error of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.asked = threading.Semaphore(0)
        self.calls: list[str] = []
        self.listed = threading.Semaphore(0)
        self.unlisted: Exception | None = None
        self.broken: Exception | None = None

    def names(self) -> Mapping[str, int]:
        self.listed.release()
        if self.unlisted:
            raise self.unlisted
        return super().names()

    def put(self, name: str, content: bytes) -> None:
        self._call(f"put {name} {content.decode()}")
        self.files[name] = content

    def delete(self, name: str) -> None:
        self._call(f"delete {name}")
        self.files.pop(name, None)

    def _call(self, call: str) -> None:
        self.asked.release()
        assert self.open.wait(HANG)
        self.calls.append(call)
        if self.broken:
            raise self.broken


@pytest.fixture
def mirrored_folder() -> Folder:
    return Folder()


@pytest.fixture
def mirror_store() -> Store:
    return Store()


def change(mirror: BackgroundMirror, folder: Folder, name: str, content: str) -> None:
    folder.files[name] = content.encode()
    mirror.ask(name, gone=False)


def test_nobody_waits_and_the_newest_content_arrives(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror = BackgroundMirror(mirror_store, mirrored_folder)
    change(mirror, mirrored_folder, "a", "1")
    assert mirror_store.asked.acquire(timeout=HANG)  # it is being put, and the store is slow
    for content in ("2", "3", "4"):
        change(mirror, mirrored_folder, "b", content)
    mirror.ask("a", gone=True)
    mirror_store.open.set()
    mirror.close(HANG)
    assert mirror_store.calls == ["put a 1", "put b 4", "delete a"]
    assert mirror_store.files == {"b": b"4"}


def known(mirror: BackgroundMirror) -> Mapping[str, int]:
    """What only the store has."""
    deadline = time.monotonic() + HANG
    while (earlier := mirror.earlier) is None:
        assert time.monotonic() < deadline
    return earlier


def test_it_has_all_files_of_the_run(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror_store.files, mirrored_folder.files = {"a": b"1", "b": b"old", "c": b"3"}, {"b": b"new"}
    mirror = BackgroundMirror(mirror_store, mirrored_folder)
    assert known(mirror) == {"a": 1, "c": 1}
    assert (mirror.names(), mirror.read("a"), mirror.read("b")) == ({"a": 1, "b": 3, "c": 1}, b"1", b"new")
    mirror_store.open.set()
    mirror.ask("a", gone=True)
    assert mirror.names() == {"b": 3, "c": 1}, "at once"
    with pytest.raises(FileNotFoundError):
        mirror.read("a")
    mirror.close(HANG)
    assert mirror_store.files.keys() == {"b", "c"}


def test_a_store_that_cannot_be_listed_is_asked_again_and_takes_files_meanwhile(
    mirrored_folder: Folder, mirror_store: Store
) -> None:
    """The folder's own files are there to be read; a key may be one that may not list."""
    mirror_store.unlisted, mirror_store.files = StoreError("you may not list"), {"old": b"1"}
    mirror_store.open.set()
    mirror = BackgroundMirror(mirror_store, mirrored_folder, pause_seconds=0)
    assert complaint(mirror, mirrored_folder) == "you may not list"
    assert mirror_store.asked.acquire(timeout=HANG)
    assert (mirror.earlier, mirror.names()) == (None, {"b": 1})
    with pytest.raises(FileNotFoundError):
        mirror.read("old")
    mirror_store.unlisted = None
    assert known(mirror) == {"old": 1}
    mirror.close(HANG)


def test_the_end_does_not_wait_for_a_listing(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror_store.unlisted = StoreError("away")
    mirror_store.open.set()
    mirror = BackgroundMirror(mirror_store, mirrored_folder, pause_seconds=HANG)
    assert mirror_store.listed.acquire(timeout=HANG)
    mirrored_folder.files["a"] = b"1"
    with contextlib.suppress(StoreError):  # it may know already that it cannot list
        mirror.ask("a", gone=False)
    mirror.close(HANG)
    assert mirror_store.files == {"a": b"1"}


def test_a_file_that_was_removed_meanwhile_is_not_put(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror_store.open.set()
    mirror = BackgroundMirror(mirror_store, mirrored_folder)
    mirror.ask("gone", gone=False)
    mirror.close(HANG)
    assert mirror_store.calls == []


def test_what_failed_is_done_later_and_said_until_then(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror_store.broken = StoreError("the bucket is full")
    mirror = BackgroundMirror(mirror_store, mirrored_folder, pause_seconds=HANG)
    change(mirror, mirrored_folder, "a", "1")
    assert mirror_store.asked.acquire(timeout=HANG)
    mirror_store.open.set()
    assert complaint(mirror, mirrored_folder) == "the bucket is full"
    mirror_store.broken = None
    mirror.close(HANG)  # it does not wait for the pause to end
    assert mirror_store.files == {"a": b"1", "b": b"x"}


def complaint(mirror: BackgroundMirror, folder: Folder) -> str:
    """What it says once its thread has learned of the failure."""
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        try:
            change(mirror, folder, "b", "x")
        except StoreError as error:
            return str(error)
    pytest.fail("nobody complained")


@pytest.mark.parametrize("broken", [StoreError("away"), ValueError("a bug of the library")])
def test_a_store_that_stays_away_is_tried_once_more_at_the_end(
    mirrored_folder: Folder, mirror_store: Store, broken: Exception
) -> None:
    mirror_store.broken = broken
    mirror_store.open.set()
    mirror = BackgroundMirror(mirror_store, mirrored_folder, pause_seconds=HANG)
    mirrored_folder.files["a"] = b"1"
    mirror.ask("a", gone=False)
    with pytest.raises(StoreError, match=r"changes of 1 rollout files are not in the store: .*a"):
        mirror.close(HANG)
    assert set(mirror_store.calls) == {"put a 1"}


def test_the_end_does_not_wait_for_a_store_that_hangs(mirrored_folder: Folder, mirror_store: Store) -> None:
    mirror = BackgroundMirror(mirror_store, mirrored_folder)
    change(mirror, mirrored_folder, "a", "1")
    assert mirror_store.asked.acquire(timeout=HANG)
    change(mirror, mirrored_folder, "b", "1")
    with pytest.raises(StoreError, match="changes of 2 rollout files are not in the store: 0 s were not enough"):
        mirror.close(0.01)
    mirror_store.open.set()
