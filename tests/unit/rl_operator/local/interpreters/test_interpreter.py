"""What uv builds; with packages that need no index."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_packages import make_package

from rl_operator.local.interpreters.interpreter import Installed, Interpreter, Recipe, find_uv, read_installed
from rl_operator.operator_errors import RefusedError


def arguments(origin: dict[str, Any]) -> tuple[str, ...]:
    return Installed("1.2.0", origin, "").arguments("verifiers")


def test_of_an_index_it_is_the_version() -> None:
    assert arguments({}) == ("tinker-atropos[verifiers]==1.2.0",)


def test_an_editable_folder_stays_editable(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    origin = {"url": folder.as_uri(), "dir_info": {"editable": True}}
    assert arguments(origin) == ("--editable", f"{folder}[verifiers]")
    assert Installed("1", origin, "").arguments("") == ("--editable", str(folder))


def test_a_folder_or_a_wheel_is_installed_again(tmp_path: Path) -> None:
    wheel = tmp_path / "tinker_atropos-1.2.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert arguments({"url": wheel.as_uri(), "archive_info": {}}) == (f"tinker-atropos[verifiers] @ {wheel.as_uri()}",)
    assert arguments({"url": tmp_path.as_uri(), "dir_info": {}}) == (
        f"tinker-atropos[verifiers] @ {tmp_path.as_uri()}",
    )


def test_a_commit_is_taken_from_its_repository() -> None:
    origin = {
        "url": "https://git.example/rl",
        "vcs_info": {"vcs": "git", "commit_id": "0a1b"},
        "subdirectory": "tinker-atropos",
    }
    reference = "git+https://git.example/rl@0a1b#subdirectory=tinker-atropos"
    assert arguments(origin) == (f"tinker-atropos[verifiers] @ {reference}",)


def test_what_is_installed_here_is_read_and_has_a_stamp() -> None:
    found = read_installed(str(Path(sys.executable).with_name("tinker-atropos")))
    assert found.version
    assert found.stamp == read_installed(str(Path(sys.executable).with_name("tinker-atropos"))).stamp


def test_a_program_elsewhere_is_read_where_it_is_installed(tmp_path: Path) -> None:
    """A virtual environment without the distribution, and then with one."""
    program, site = tmp_path / "venv" / "bin" / "tinker-atropos", tmp_path / "venv/lib/python3.11/site-packages"
    program.parent.mkdir(parents=True)
    site.mkdir(parents=True)
    program.write_text("")
    with pytest.raises(RefusedError, match="belongs to no installed distribution"):
        read_installed(str(program))
    info = site / "tinker_atropos-9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinker-atropos\nVersion: 9.0\n")
    first = read_installed(str(program))
    assert (first.version, first.origin) == ("9.0", {})
    (info / "direct_url.json").write_text(json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    second = read_installed(str(program))
    assert (second.is_editable, second.folder) == (True, tmp_path)
    # What an editable folder requires is part of what is installed.
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert len({first.stamp, second.stamp, read_installed(str(program)).stamp}) == 3


OFFLINE = {**os.environ, "UV_OFFLINE": "1"}


def recipe(requirement: str) -> Recipe:
    return Recipe(Installed("0.1.0", {}, "here"), (requirement,), {}, requirement)


@pytest.fixture
def interpreter(process: None, tmp_path: Path) -> Interpreter:
    (tmp_path / "interpreters").mkdir()
    return Interpreter(tmp_path / "interpreters" / "mine")


def test_uv_installs_and_says_what_it_does(interpreter: Interpreter, tmp_path: Path) -> None:
    package = make_package(tmp_path / "tiny", "tiny-words", {"tiny_words.py": "WORDS = []\n"})
    steps: list[str] = []
    assert interpreter.ensure(lambda _: recipe(f"tiny-words @ {package.as_uri()}"), OFFLINE, steps.append)
    assert list(interpreter.folder.glob("build-*/lib/*/site-packages/tiny_words.py"))
    assert steps[0] == "making a virtual environment"
    assert any(step.startswith("uv installs tiny-words") for step in steps)
    assert any(step.startswith("Installed 1 package") for step in steps)


def test_what_uv_said_last_is_in_the_refusal(interpreter: Interpreter) -> None:
    with pytest.raises(RefusedError, match=r"(?s)uv could not install it.*nosuch.*UV_DEFAULT_INDEX"):
        interpreter.ensure(lambda _: recipe("nosuch"), OFFLINE, lambda _: None)
    assert not interpreter.builds()


def test_uv_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RefusedError, match=r"uv is not installed.*-m pip install uv\) or anywhere on PATH"):
        find_uv({"PATH": str(tmp_path)})
    (tmp_path / "uv").touch(mode=0o755)
    assert find_uv({"PATH": str(tmp_path)}) == (str(tmp_path / "uv"),)
