"""Log lines of real processes: one JSON object each, whatever wrote them."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

PROGRAM = Path(sys.executable).with_name("tinker-atropos")
SAYS = """
    import logging, warnings
    from rl_contract.logs import configure_logging
    configure_logging({log_format!r})
    figures = {{"step": 3, "train/loss": -0.5}}
    logging.getLogger("tinker_atropos.trainer.trainer_run").info("step 3/40", extra={{"figures": figures}})
    warnings.warn("a library's")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("a").exception("it failed")
    raise RuntimeError("at the end")
"""


def said(log_format: str) -> str:
    code = textwrap.dedent(SAYS).format(log_format=log_format)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stderr


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_is_an_object() -> None:
    step, warning, failed, uncaught = objects(said("json"))
    assert {"level", "logger", "message"} <= step.keys()
    assert step["time"].endswith("+00:00")
    assert (step["message"], step["figures"]) == ("step 3/40", {"step": 3, "train/loss": -0.5})
    assert "a library's" in warning["message"]
    assert (failed["level"], failed["message"]) == ("error", "it failed")
    assert "ZeroDivisionError" in failed["traceback"]
    assert uncaught["message"] == "RuntimeError: at the end"


def test_text_is_a_line_with_only_the_message() -> None:
    first = said("text").splitlines()[0]
    assert first.endswith(" INFO step 3/40")


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        pytest.param(["--log-format", "json"], None, id="flag"),
        pytest.param([], "json", id="variable"),
        pytest.param(["--log-format", "json"], "text", id="the flag wins"),
    ],
)
def test_the_reason_of_an_exit_is_an_object_too(arguments: list[str], variable: str | None, tmp_path: Path) -> None:
    env_vars = {name: value for name, value in os.environ.items() if name != "RL_LOG_FORMAT"}
    ended = subprocess.run(
        [PROGRAM, "trainer", "--config", "none.yaml", *arguments],
        env=env_vars | ({"RL_LOG_FORMAT": variable} if variable else {}) | {"RL_OPS_PORT": "0"},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    (line,) = objects(ended.stderr)
    assert line["level"] == "error"
    assert line["message"].startswith("cannot read the config file none.yaml")


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param(["api"], "RL_API_URL", id="api"),
        pytest.param(
            ["environment", "sort_digits", "serve", "--config", "none.yaml"], "cannot read the config file", id="env"
        ),
    ],
)
def test_the_reason_of_an_exit_is_the_termination_message(
    command: list[str], reason: str, log_format: str, tmp_path: Path
) -> None:
    """A result is what a process means: its last log line may be about anything, and in any format."""
    message = tmp_path / "termination-log"
    message.touch()
    wrong = {"RL_API_URL": "nowhere", "RL_RESULT_FILE": str(message), "RL_LOG_FORMAT": log_format, "RL_OPS_PORT": "0"}
    ended = subprocess.run(
        [PROGRAM, *command], env=os.environ | wrong, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert message.read_text().startswith("error: ")
    assert reason in message.read_text()


def test_an_unknown_format_is_refused_by_name() -> None:
    ended = subprocess.run(
        [PROGRAM, "api", "--log-format", "xml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "'text', 'json'" in ended.stderr
