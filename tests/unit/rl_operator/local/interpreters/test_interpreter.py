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


def origin(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, **more}


@pytest.mark.parametrize(
    ("made_from", "arguments"),
    [
        pytest.param({}, ("tinker-atropos[verifiers]==1.2.0",), id="an index"),
        pytest.param(
            origin("file:///a%20folder", dir_info={"editable": True}),
            ("--editable", "/a folder[verifiers]"),
            id="an editable folder",
        ),
        pytest.param(
            origin("file:///folder", dir_info={}), ("tinker-atropos[verifiers] @ file:///folder",), id="a folder"
        ),
        pytest.param(
            origin("file:///one.whl", archive_info={}), ("tinker-atropos[verifiers] @ file:///one.whl",), id="a wheel"
        ),
        pytest.param(
            origin("https://git.example/rl", vcs_info={"vcs": "git", "commit_id": "0a1b"}, subdirectory="part"),
            ("tinker-atropos[verifiers] @ git+https://git.example/rl@0a1b#subdirectory=part",),
            id="a commit",
        ),
    ],
)
def test_it_is_installed_again_from_where_it_came(made_from: dict[str, Any], arguments: tuple[str, ...]) -> None:
    installed = Installed("1.2.0", made_from, "")
    assert installed.arguments("verifiers") == arguments
    assert installed.arguments("") == tuple(word.replace("[verifiers]", "") for word in arguments)


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
