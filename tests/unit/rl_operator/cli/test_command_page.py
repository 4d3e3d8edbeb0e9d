"""docs/reference/rlctl.md lists every command and every exit code."""

import re
from pathlib import Path

import typer

from rl_operator.cli.app import app
from rl_operator.cli.exits import CommandExit

PAGE = Path("docs/reference/rlctl.md").read_text(encoding="utf-8")


def test_the_page_lists_every_command() -> None:
    commands = typer.main.get_group(app).commands
    listed = re.findall(r"^\| `([a-z]+)[^`]*` \|", PAGE.partition("Most commands")[0], flags=re.MULTILINE)
    assert sorted(listed) == sorted(commands)
    assert len(listed) > 15


def test_the_page_lists_every_exit_code() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)} == set(CommandExit)
