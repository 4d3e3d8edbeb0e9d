"""Files of a sandbox, and what is searched in them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.sandboxes.conftest import shell

from tinker_atropos.sandboxes import stream_sandbox
from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Match, SandboxError
from tinker_atropos.sandboxes.sandbox_server.file_search import find_files, find_text
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import (
    SandboxRequestError,
    read_file,
    remove_folder,
    write_file,
)

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40)
PATHS = st.lists(NAMES.filter(lambda name: name not in {".", ".."}), min_size=1, max_size=3).map("/".join)


@given(path=PATHS, first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_what_is_written_is_read(
    path: str, first: bytes, second: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.mktemp("files"))
    for content in (first, second):
        write_file(folder, path, content)
        assert read_file(folder, path, 300) == content


@given(content=st.binary(max_size=2000))
def test_files_go_through_a_sandbox(sandbox: LocalSandbox, content: bytes) -> None:
    sandbox.write_file("there/and/back", content)
    assert sandbox.read_file("there/and/back", 2000) == content


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/outside", "inside/../../outside", "link/outside", "file", "inside/link/outside"]
)
def test_nothing_is_written_outside(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "sandbox"
    (folder / "inside").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    (folder / "inside" / "link").symlink_to("../..")
    (folder / "file").symlink_to(tmp_path / "outside")
    with pytest.raises(SandboxRequestError, match="outside of"):
        write_file(str(folder), path, b"")
    assert os.listdir(tmp_path) == ["sandbox"]  # noqa: PTH208


def test_links_inside_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("target")
    write_file(str(tmp_path), "a/../file", b"through")
    assert (tmp_path / "target").read_bytes() == b"through"
    assert read_file(str(tmp_path), "file", 10) == b"through"


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", ".", "/dev/zero"):
        with pytest.raises(SandboxRequestError, match="not a plain file"):
            read_file(str(tmp_path), path, 10)
    for path in ("pipe", "."):
        with pytest.raises((SandboxRequestError, OSError)):
            write_file(str(tmp_path), path, b"content")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(str(tmp_path), "file", 5) == b"12345"
    with pytest.raises(SandboxRequestError, match="more than 4 bytes"):
        read_file(str(tmp_path), "file", 4)


def test_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("no\nyes 1\nyes 2\n")
    (tmp_path / "two.txt").write_text("yes\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "three.py").write_text("yes\n")
    os.mkfifo(tmp_path / "four.py")
    assert find_text(str(tmp_path), r"yes \d", ".", "*.py", 9) == [("a/one.py", 2, "yes 1"), ("a/one.py", 3, "yes 2")]
    assert find_text(str(tmp_path), "yes", "two.txt", "*", 9) == [("two.txt", 1, "yes")]
    assert len(find_text(str(tmp_path), "yes", ".", "*", 2)) == 2
    with pytest.raises(SandboxRequestError, match="not a regular expression"):
        find_text(str(tmp_path), "(", ".", "*", 1)


def test_files_are_found_newest_first(tmp_path: Path) -> None:
    for at, name in enumerate(("old.py", "new.py", "other.txt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    assert find_files(str(tmp_path), "*.py", ".", 9) == ["new.py", "old.py"]
    assert find_files(str(tmp_path), "*", ".", 1) == ["other.txt"]


def test_a_sandbox_searches_its_files(sandbox: LocalSandbox) -> None:
    sandbox.write_file("searched/ä.txt", "ß — yes\n".encode())
    assert sandbox.find_text("yes", "searched", "*", 9) == [Match("searched/ä.txt", 1, "ß — yes")]
    assert sandbox.find_files("*.txt", "searched", 9) == ["searched/ä.txt"]
    with pytest.raises(SandboxError, match="not a regular expression"):
        sandbox.find_text("(", ".", "*", 1)


def test_a_search_without_end_is_cut(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sandbox answers meanwhile."""
    monkeypatch.setattr(stream_sandbox, "SEARCH_SECONDS", 0.5)
    sandbox.write_file("endless", b"a" * 60)
    with pytest.raises(SandboxError, match=r"took more than 0\.5 s"):
        sandbox.find_text("(a+)+b", "endless", "*", 1)
    assert shell(sandbox, "echo on").output == "on\n"


def test_a_file_that_cannot_be_read_says_why(sandbox: LocalSandbox) -> None:
    for path, words in (("none", "No such file"), ("\0", "null"), (".", "not a plain file"), ("x" * 300, "too long")):
        with pytest.raises(SandboxError, match=words):
            sandbox.read_file(path, 10)


@pytest.mark.process
def test_a_folder_is_removed_whatever_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "sandbox"
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed").chmod(0)
    (folder / "link").symlink_to(tmp_path)
    deepest = os.open(folder, os.O_RDONLY)
    for _ in range(2500):  # more than Python's own removal can descend
        os.mkdir("d", dir_fd=deepest)
        deeper = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = deeper
    os.close(deepest)
    remove_folder(str(folder))
    assert not folder.exists()
    assert tmp_path.exists()


def test_a_full_disk_is_said(start: Callable[..., LocalSandbox], plain: bool) -> None:
    """By the limit of its file system; without namespaces, by that of each file."""
    full, other = start(plain=plain, disk_mb=4), start(plain=plain, disk_mb=4)
    written = shell(full, "head -c 16M /dev/zero > big")
    assert written.exit_code != 0
    with pytest.raises(SandboxError, match=r"No space left on device|File too large"):
        full.write_file("bigger", bytes(8 * 2**20))
    assert int(shell(full, "stat -c %s big bigger | paste -sd+ | bc || echo 0").output or 0) <= 8 * 2**20
    assert shell(full, "rm big bigger; echo on > small; cat small").output == "on\n"
    other.write_file("file", bytes(2 * 2**20))
