"""The plugin of hermes-agent, at the protocol of its loader; and in hermes itself, if it is installed."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local.conftest import end_everything
from tests.integration.local.scripted import WORKS_ON, start_scripted

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.tools.serving.hermes import Handler, Interruption
from rl_operator.tools.serving.skill import SKILL_FILE
from rl_operator.tools.toolset import TOOLS

NAMES = [tool.name for tool in TOOLS]
SEEDS_NAMES = {
    "rl_list_environments",
    "rl_select_environment",
    "rl_get_current_config",
    "rl_edit_config",
    "rl_start_training",
    "rl_check_status",
    "rl_stop_training",
    "rl_get_results",
    "rl_list_runs",
    "rl_test_inference",
}
"""As agents have called them so far."""


@dataclass
class Recorder:
    """What a loader receives."""

    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    skills: dict[str, Path] = field(default_factory=dict)

    def register_tool(
        self, *, name: str, toolset: str, schema: dict[str, Any], handler: Handler, check_fn: Callable[[], bool]
    ) -> None:
        self.tools[name] = {"toolset": toolset, "schema": schema, "handler": handler, "check_fn": check_fn}

    def register_skill(self, name: str, path: Path) -> None:
        self.skills[name] = path

    def call(self, tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
        text = self.tools[tool]["handler"](arguments, **more)
        assert isinstance(text, str)
        answer: dict[str, Any] = json.loads(text)
        return answer


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Hermes passes its own environment variables on."""
    monkeypatch.setenv("RL_LOCAL", "1")
    monkeypatch.setenv("RL_STATE_DIR", str(tmp_path))
    yield tmp_path
    end_everything(tmp_path)
    shutil.rmtree(Layout(tmp_path).objects, ignore_errors=True)  # a supervisor that comes late finds no run, and ends


@pytest.fixture
def loaded(state: Path) -> Recorder:
    """Through the entry point, as the loader finds it."""
    [found] = entry_points(group="hermes_agent.plugins", name="rl-operator")
    recorder = Recorder()
    found.load().register(recorder)
    return recorder


def test_the_registered_tools(loaded: Recorder) -> None:
    assert list(loaded.tools) == NAMES
    assert set(NAMES) >= SEEDS_NAMES
    for name, tool in loaded.tools.items():
        assert (tool["toolset"], tool["schema"]["name"]) == ("rl", name)
        assert tool["schema"]["description"]
        assert tool["schema"]["parameters"]["type"] == "object"
    assert loaded.skills == {"rl-training": SKILL_FILE}


@pytest.mark.process
def test_each_conversation_finds_its_own_drafts(loaded: Recorder) -> None:
    run_id = loaded.call("rl_select_environment", {"name": "sort_digits"}, session_id="a", task_id="t")["run_id"]
    loaded.call("rl_select_environment", {"name": "sort_digits"}, session_id="b")
    assert loaded.call("rl_get_current_config", {}, session_id="a")["run_id"] == run_id
    stranger = loaded.call("rl_get_current_config", {}, session_id="c")
    assert "you have drafted no run yet" in stranger["error"]


def test_errors_are_answers(loaded: Recorder) -> None:
    answer = loaded.call("rl_check_status", {"run": "x"})
    assert (answer["code"], answer["retryable"]) == ("refused", False)
    assert "did you mean 'run_id'" in answer["error"]


def test_a_target_that_cannot_be_opened(
    loaded: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RL_LOCAL", "0")
    monkeypatch.setenv("RL_CONTEXT", "gone")
    check = loaded.tools["rl_list_runs"]["check_fn"]
    assert not check()
    assert "are not offered" in caplog.text
    assert loaded.call("rl_list_runs", {})["error"] in caplog.text
    monkeypatch.setenv("RL_LOCAL", "1")
    assert check()
    assert loaded.call("rl_list_runs", {})["count"] == 0


def test_outside_hermes_a_wait_lasts_until_it_is_canceled() -> None:
    waited = Interruption()
    assert not waited.wait(0.01)
    threading.Timer(0.01, waited.set).start()
    began = time.monotonic()
    assert waited.wait(60)
    assert time.monotonic() - began < 30


@pytest.mark.process
@pytest.mark.nightly("operator/src/rl_operator/tools/serving")
def test_in_hermes_itself(state: Path) -> None:
    python = os.environ.get("RL_HERMES_PYTHON")
    if not python:
        pytest.skip("needs RL_HERMES_PYTHON: of a venv with both (V/bin/pip install hermes-agent==0.19.0 -e operator)")
    home = state / "hermes"
    home.mkdir()
    (home / "config.yaml").write_text("plugins: {enabled: [rl-operator]}\n", encoding="utf-8")
    start_scripted(StateStore(Layout(state)), "going", trainer=WORKS_ON)
    program = str(Path(__file__).parents[1] / "hermes_program.py")
    ended = subprocess.run(
        [python, program, "going"],
        env=os.environ | {"HERMES_HOME": str(home)},
        cwd=state,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["plugin"] == [True, "entrypoint", None]
    assert sorted(NAMES) == seen["toolset"] == [each["function"]["name"] for each in seen["offered"]]
    assert seen["own"]["run_id"] == seen["drafted"]["run_id"]
    assert seen["own"]["configurable_fields"][0]["name"] == "group_size"
    assert "you have drafted no run yet" in seen["others"]["error"]
    assert "did you mean 'group_size'" in seen["wrong"]["error"]
    assert seen["interrupted_after"] < 60
    assert "# Training with the rl_ tools" in seen["skill"]["content"]
