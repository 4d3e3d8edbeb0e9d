"""Which nightly tests a run chooses."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from tests import seeds
from tests.plugins.tiers import (
    PARTS,
    ROOT,
    changed_files,
    is_held,
    part_of,
    pytest_collection_modifyitems,
)

FILE = PurePosixPath("tests/integration/local/test_x.py")


def test_a_test_is_in_one_part_and_parts_are_about_equal() -> None:
    sizes = Counter(part_of(f"tests/test_x.py::test_it[{number}]") for number in range(400))
    assert sorted(sizes) == list(range(1, 11))
    assert all(20 < size < 70 for size in sizes.values())
    assert part_of("tests/test_x.py::test_it[1]") == part_of("tests/test_x.py::test_it[1]")


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ("operator/src/rl_operator/local/pods/pod.py", True),
        ("operator/src/rl_operator/local.py", False),
        ("tests/integration/local/test_x.py", True),
        ("tests/integration/local/test_y.py", False),
    ],
)
def test_a_change_of_its_folder_or_its_own_file_runs_a_test(changed: str, held: bool) -> None:
    assert is_held(["operator/src/rl_operator/local"], FILE, frozenset({PurePosixPath(changed)})) is held


def marks() -> Iterator[tuple[Path, ast.Call]]:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mark.nightly" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.nightly":
                yield file, node


def test_what_nightly_tests_hold_exists() -> None:
    """Or a change of a folder that was moved would no longer run them."""
    stale = [
        f"{file.relative_to(ROOT)}: {folder.value}"
        for file, mark in marks()
        for folder in mark.args
        if isinstance(folder, ast.Constant) and not (ROOT / str(folder.value)).exists()
    ]
    assert stale == []


NIGHTLY = """
import pytest

@pytest.mark.parametrize("number", range(40))
@pytest.mark.nightly("product")
def test_nightly(number):
    pass

def test_other():
    pass
"""


@pytest.fixture
def nightly_repository(process: None, tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(NIGHTLY)
    for command in (["init"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=n@n", "commit", "-m", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def run(folder: Path, **env_vars: str) -> str:
    loaded = ["-p", "tests.plugins.tiers", "-p", "tests.plugins.summary", "-c", os.devnull, "--rootdir", str(folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, "-p", "no:asyncio", "--numprocesses", "2", str(folder)],
        env={**os.environ, "PYTEST_ADDOPTS": "", **env_vars},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_the_part_of_the_commit_runs_and_is_named(nightly_repository: Path) -> None:
    said = run(nightly_repository, RL_NIGHTLY="tenth", RL_SEED="a", RL_BASE="HEAD")
    part = [n for n in range(40) if part_of(f"test_it.py::test_nightly[{n}]") == 1 + _seed("a") % PARTS]
    assert f" {len(part) + 1} passed" in said
    assert f"{len(part)} of 40 nightly tests" in said
    assert "(RL_SEED=a)" in said
    assert f"{40 - len(part)} tests were not selected" in said


@pytest.mark.parametrize("asked", ["", "all"])
def test_all_run_unless_a_part_is_asked_for(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("RL_NIGHTLY", asked)
    items = [request.node, request.node]
    request.node.add_marker(pytest.mark.nightly("docs"))
    pytest_collection_modifyitems(pytestconfig, items)
    assert len(items) == 2


def _seed(text: str) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RL_SEED", text)
        seeds.seed_text.cache_clear()
        try:
            return seeds.seed_of_commit()
        finally:
            patched.undo()
            seeds.seed_text.cache_clear()


def test_changes_since_a_commit(nightly_repository: Path) -> None:
    assert changed_files("HEAD", nightly_repository) == frozenset()
    (nightly_repository / "test_it.py").write_text("")
    changed_files.cache_clear()
    assert changed_files("HEAD", nightly_repository) == {PurePosixPath("test_it.py")}
    assert changed_files("HEAD~20", nightly_repository) is None
