"""What is kept when there is little room, and when the disk is full."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_atropos.rollout_files.rollout_store import (
    MEGABYTE,
    BoundedFolder,
    StepFile,
    TooLargeError,
    is_rollout_file,
    metrics_name,
    parse_name,
)


def kept(folder: Path, limit: int) -> BoundedFolder:
    return BoundedFolder(folder / "rollouts", limit)


def steps(folder: BoundedFolder) -> list[int]:
    return sorted(int(name.partition("-")[0]) for name in folder.names())


def test_nothing_is_made_before_something_is_kept(tmp_path) -> None:
    folder = kept(tmp_path, 1000)
    assert (folder.names(), folder.keeps(3), list(tmp_path.iterdir())) == ({}, True, [])
    assert not kept(tmp_path, 0).keeps(0)


def test_a_file_grows_at_its_end(tmp_path) -> None:
    folder = kept(tmp_path, 1000)
    assert folder.append(StepFile(1, 1), b"one") == folder.append(StepFile(1, 1), b"two") == []
    folder.append(StepFile(1, 2), b"again")
    assert folder.names() == {"000001-1.jsonl.zst": 6, "000001-2.jsonl.zst": 5}
    assert folder.read("000001-1.jsonl.zst") == b"onetwo"


def test_old_and_new_steps_are_thinned_alike(tmp_path) -> None:
    folder = kept(tmp_path, 1000)
    removed = [folder.append(StepFile(step, 1), bytes(100)) for step in range(11)]
    assert removed[:10] == [[]] * 10
    assert removed[10] == [f"{step:06d}-1.jsonl.zst" for step in (1, 3, 5, 7, 9)]
    assert (folder.every, steps(folder), folder.keeps(11), folder.keeps(12)) == (2, [0, 2, 4, 6, 8, 10], False, True)
    for step in (12, 14, 16, 18, 20):
        folder.append(StepFile(step, 1), bytes(100))
    assert (folder.every, steps(folder)) == (4, [0, 4, 8, 12, 16, 20])


def test_a_later_attempt_goes_on_with_the_interval(tmp_path) -> None:
    first = kept(tmp_path, 1000)
    for step in range(30):
        if first.keeps(step):
            first.append(StepFile(step, 1), bytes(100))
    assert first.every == 4
    second = kept(tmp_path, 1000)
    assert [step for step in range(9) if second.keeps(step)] == [0, 4, 8]
    assert second.append(StepFile(28, 2), bytes(100)) == []
    assert kept(tmp_path, 100_000).keeps(3), "more room: all are kept again"


def names_of(attempt: int, steps: Iterable[int]) -> list[str]:
    return [StepFile(step, attempt).name for step in steps]


def test_files_that_only_a_mirror_has_are_counted_and_thinned_alike(tmp_path) -> None:
    folder = kept(tmp_path, 1000)
    for step in (8, 9):
        folder.append(StepFile(step, 2), bytes(100))
    elsewhere = dict.fromkeys([*names_of(1, range(0, 10, 2)), "metrics-1.jsonl.zst"], 100)
    assert folder.count(elsewhere) == []
    assert folder.append(StepFile(10, 2), bytes(200)) == []
    assert set(folder.append(StepFile(11, 2), bytes(200))) == {*names_of(2, (9, 11))}
    assert set(folder.append(StepFile(12, 2), bytes(250))) == {*names_of(1, (2, 6)), *names_of(2, (10,))}
    assert (folder.every, steps(folder)) == (4, [8, 12])


def test_a_mirror_that_is_thinned_sets_the_interval_of_what_is_here_already(tmp_path) -> None:
    folder = kept(tmp_path, 1000)
    for step in (7, 8):
        folder.append(StepFile(step, 2), bytes(100))
    assert folder.count(dict.fromkeys(names_of(1, range(0, 32, 4)), 75)) == names_of(2, (7,))
    assert (folder.every, folder.keeps(10), folder.keeps(12)) == (4, False, True)


@given(st.lists(st.integers(1, 250), max_size=40))
@settings(max_examples=40)
def test_the_folder_is_never_larger_than_its_limit(tmp_path_factory, sizes) -> None:
    folder = kept(tmp_path_factory.mktemp("thinned"), 1000)
    for step, size in enumerate(sizes):
        if folder.keeps(step):
            folder.append(StepFile(step, 1), bytes(size))
        assert sum(folder.names().values()) <= 1000
    assert all(step % folder.every == 0 for step in steps(folder))
    assert steps(folder) == [step for step in range(len(sizes)) if step % folder.every == 0]


def test_one_step_may_not_take_the_room_of_the_others(tmp_path) -> None:
    folder = kept(tmp_path, 8 * MEGABYTE)
    folder.append(StepFile(1, 1), bytes(MEGABYTE))
    with pytest.raises(
        TooLargeError, match=r"^step 1 takes 3\.0 MB, more than a quarter of trainer.keep_rollouts_mb \(8\)$"
    ):
        folder.append(StepFile(1, 1), bytes(2 * MEGABYTE))
    assert folder.names() == {"000001-1.jsonl.zst": MEGABYTE}
    folder.append(StepFile(1, 1), b"small")


def test_metrics_are_beside_the_steps_and_are_never_removed(tmp_path) -> None:
    folder = kept(tmp_path, 400)
    assert folder.append_metrics(1, bytes(600)) == "metrics-1.jsonl.zst"
    for step in range(9):
        if folder.keeps(step):
            folder.append(StepFile(step, 1), bytes(100))
    folder.append_metrics(1, bytes(600))
    assert folder.read("metrics-1.jsonl.zst") == bytes(1200)
    assert folder.names().keys() == {
        "metrics-1.jsonl.zst",
        "000000-1.jsonl.zst",
        "000004-1.jsonl.zst",
        "000008-1.jsonl.zst",
    }
    assert kept(tmp_path, 400).keeps(12)


FULL_DISK = """
import resource, sys
from pathlib import Path
from tinker_atropos.rollout_files.rollout_store import StepFile
from tinker_atropos.rollout_files.rollout_store import BoundedFolder

folder = BoundedFolder(Path(sys.argv[1]), 2**24)
folder.append(StepFile(1, 1), bytes(98_000))
folder.append_metrics(1, bytes(98_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))  # as far as the disk goes
for size in (3_000, 500_000):
    for append in (lambda: folder.append(StepFile(1, 1), b"x" * size), lambda: folder.append_metrics(1, b"x" * size)):
        try:
            append()
        except OSError as error:
            print(error.strerror)
assert folder.names() == {"000001-1.jsonl.zst": 98_000, "metrics-1.jsonl.zst": 98_000}, folder.names()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
folder.append(StepFile(1, 1), b"y")
print(folder.read("000001-1.jsonl.zst").count(b"x"), sorted(folder.names().values()))
"""


@pytest.mark.process
def test_what_a_full_disk_takes_no_more_leaves_the_file_as_it_was(tmp_path) -> None:
    """A part of a frame would hide all later ones. In a process of its own, the kernel does not let files grow."""
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], check=False, capture_output=True, text=True, timeout=120
    )
    assert child.returncode == 0, child.stderr
    *errors, after = child.stdout.splitlines()
    assert errors == ["File too large"] * 4
    assert after == "0 [98000, 98001]"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "", "secret", "000001-1.jsonl.zst/../../secret"])
def test_only_rollout_files_are_read(tmp_path, name) -> None:
    folder = kept(tmp_path, 1000)
    folder.append(StepFile(1, 1), b"one")
    (tmp_path / "secret").write_text("no")
    (tmp_path / "rollouts" / "secret").write_text("no")
    with pytest.raises(FileNotFoundError):
        folder.read(name)
    assert folder.names() == {"000001-1.jsonl.zst": 3}


def test_a_file_that_is_gone(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        kept(tmp_path, 1000).read("000001-1.jsonl.zst")


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path) -> None:
    (tmp_path / "rollouts").write_text("a file")
    with pytest.raises(NotADirectoryError):
        kept(tmp_path, 1000).names()


def test_a_file_that_is_removed_while_files_are_listed_is_left_out(tmp_path, monkeypatch) -> None:
    """The thread that makes room is not the one that lists."""
    folder = kept(tmp_path, 1000)
    for step in (1, 2):
        folder.append(StepFile(step, 1), b"one")
    scan = os.scandir

    def scanned(path):
        listed = scan(path)
        (tmp_path / "rollouts" / "000001-1.jsonl.zst").unlink()
        return listed

    monkeypatch.setattr(os, "scandir", scanned)
    assert folder.names() == {"000002-1.jsonl.zst": 3}


@given(st.integers(0, 10**12 - 1), st.integers(1, 10**9 - 1))
def test_a_name_says_the_step_and_the_attempt(step, attempt) -> None:
    assert parse_name(StepFile(step, attempt).name) == StepFile(step, attempt)
    assert is_rollout_file(metrics_name(attempt))
    assert parse_name(metrics_name(attempt)) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "12-1.jsonl.zst",
        "000012.jsonl.zst",
        "000012-1.jsonl",
        "000012-1.jsonl.zst\n",
        "000012-1.jsonl.zst.tmp",
        "../000012-1.jsonl.zst",
        "/000012-1.jsonl.zst",
        "metrics-1.jsonl.zst/..",
        "metrics-.jsonl.zst",
        "٠٠٠٠١٢-1.jsonl.zst",
    ],
)
def test_other_files(name) -> None:
    assert parse_name(name) is None
    assert not is_rollout_file(name)
