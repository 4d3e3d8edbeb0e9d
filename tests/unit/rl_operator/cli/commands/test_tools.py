"""`rlctl tools` as a user sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.rl_operator.tools.gateways import END_SECONDS, Gateway

pytestmark = pytest.mark.process

RLCTL = str(Path(sys.executable).with_name("rlctl"))


def rlctl(*arguments: str, **env_vars: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RLCTL, "tools", *arguments], env=env_vars, capture_output=True, text=True, check=False)


def test_the_table_of_tools() -> None:
    every, reading = rlctl("list"), rlctl("list", "--read-only")
    assert every.stdout.splitlines()[0].split() == ["NAME", "EFFECT", "TITLE", "PARAMETERS"]
    assert "rl_start_training" in every.stdout
    assert "rl_start_training" not in reading.stdout
    [listed] = [
        each for each in json.loads(rlctl("list", "-o", "json").stdout)["tools"] if each["name"] == "rl_list_runs"
    ]
    assert listed["parameters"]["properties"]["limit"]["type"] == "integer"


def test_instructions_for_agents() -> None:
    assert rlctl("skill").stdout.startswith("---\nname: rl-training\n")


def test_without_the_extra_it_explains_how_to_install_it(tmp_path: Path) -> None:
    """A Python with everything that rlctl needs except mcp."""
    hide = "import sys; sys.modules['mcp'] = None; from rl_operator.cli import main; main()"
    command = [sys.executable, "-c", hide, "tools", "mcp", "--local", "--state-dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    sentence = "error: the package mcp is not installed: pip install 'rl-operator[tools]' brings it\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", sentence)


def test_on_this_machine_it_creates_a_token_and_prints_its_path(tmp_path: Path) -> None:
    command = [RLCTL, "tools", "serve", "--local", "--port", "0", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            place, served = process.stdout.readline(), process.stdout.readline()
            token = (tmp_path / "tools-token").read_text(encoding="utf-8").strip()
            gateway = Gateway(served.split(" at ")[1].split(",")[0], token, process)
            assert place == f"The token is in {tmp_path / 'tools-token'}\n"
            assert gateway.ask("GET", "/health").json["target"] == f"local:{tmp_path}"
            assert gateway.ask("GET", "/health", known=False).status == 401
        finally:
            process.terminate()
        assert process.wait(END_SECONDS) == 0
