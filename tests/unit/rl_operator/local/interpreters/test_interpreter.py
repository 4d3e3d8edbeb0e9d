"""What uv builds; with packages that need no index."""

import importlib.util
import os
from pathlib import Path

import pytest
from tests.tiny_packages import make_package

from rl_operator.local.interpreters.installed import Installed
from rl_operator.local.interpreters.interpreter import Interpreter, Recipe, find_uv
from rl_operator.operator_errors import RefusedError

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
