"""The program around the commands: help, version, completion, encodings, Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator import __version__
from rl_operator.cli.app import app
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore

RLCTL = str(Path(sys.executable).with_name("rlctl"))
TINKER_ATROPOS = str(Path(sys.executable).with_name("tinker-atropos"))


def called(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env_vars = os.environ | {"COLUMNS": "80"} | variables
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=env_vars, check=False)


def test_no_line_of_the_list_of_commands_is_cut() -> None:
    summaries = {name: command.get_short_help_str(62) for name, command in typer.main.get_group(app).commands.items()}
    assert {name: summary for name, summary in summaries.items() if len(summary) > 62 or "..." in summary} == {}


@pytest.mark.process
@pytest.mark.parametrize("program", [RLCTL, TINKER_ATROPOS], ids=["rlctl", "tinker-atropos"])
def test_both_programs_have_a_version_and_plain_help(program: str) -> None:
    assert called(program, "--version").stdout == f"{Path(program).name} {__version__}\n"
    shown = called(program, "-h").stdout
    assert shown.startswith(f"Usage: {Path(program).name} ")
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.process
def test_a_shell_completes_commands_and_options() -> None:
    completed = called(RLCTL, _RLCTL_COMPLETE="complete_bash", COMP_WORDS="rlctl re", COMP_CWORD="1")
    assert completed.stdout.split() == ["render", "resume", "results", "replay"]
    options = called(RLCTL, _RLCTL_COMPLETE="complete_bash", COMP_WORDS="rlctl list --kube", COMP_CWORD="2")
    assert options.stdout.split() == ["--kubeconfig"]
    assert "_RLCTL_COMPLETE" in called(RLCTL, _RLCTL_COMPLETE="source_bash").stdout


@pytest.mark.process
def test_a_terminal_without_the_signs_gets_others(tmp_path: Path) -> None:
    history = [{"step": step, "rolloutReward": step / 10} for step in range(5)]
    StateStore(Layout(tmp_path)).create(run_manifest(phase="Succeeded", history=history))
    place = ("--local", "--state-dir", str(tmp_path))
    ended = called(RLCTL, "results", "sorting", *place, PYTHONIOENCODING="latin-1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "0.000 ????? 0.400" in ended.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("readable", "code", "said"),
    [
        (True, 0, ""),
        (False, 2, "error: cannot write, so what was printed may be incomplete: No space left on device\n"),
    ],
    ids=["a closed pipe", "a full disk"],
)
def test_the_end_of_what_is_printed_into(readable: bool, code: int, said: str) -> None:
    if readable:
        reader, output = os.pipe()
        os.close(reader)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    ended = subprocess.run([RLCTL, "-h"], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(output)
    assert (ended.returncode, ended.stderr) == (code, said)


@pytest.mark.process
def test_ctrl_c_while_the_program_loads() -> None:
    """The first import that costs time is interrupted."""
    code = (
        "import signal, sys, types\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job inherits that it is ignored
        "class Interrupted(types.ModuleType):\n"
        "    def __getattr__(self, name): signal.raise_signal(signal.SIGINT)\n"
        "sys.modules['typer'] = Interrupted('typer')\n"
        "from rl_operator.cli import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "")
