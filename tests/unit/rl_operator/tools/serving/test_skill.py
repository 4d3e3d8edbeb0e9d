"""SKILL.md: what agents read before they call."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from rl_operator.tools.agent_tool import input_schema
from rl_operator.tools.runs import ACTIVE
from rl_operator.tools.serving.skill import SKILL_FILE, SKILL_NAME, in_short, skill_text
from rl_operator.tools.toolset import BY_NAME, TOOLS

NAMES = {tool.name for tool in TOOLS}


def test_its_head_is_what_clients_index() -> None:
    head = yaml.safe_load(skill_text().split("---\n")[1])
    assert head["name"] == SKILL_NAME
    assert 40 < len(head["description"]) <= 1024
    assert set(head) == {"name", "description"}


def test_it_names_only_existing_tools() -> None:
    named = set(re.findall(r"\brl_[a-z_]*[a-z]\b", skill_text()))
    assert named <= NAMES
    assert named >= {"rl_test_inference", "rl_start_training", "rl_check_status", "rl_get_results"}


@pytest.mark.parametrize("parameter", ["dry_run", "wait_seconds", "values", "test_id", "until", "container"])
def test_it_names_only_existing_parameters(parameter: str) -> None:
    assert parameter in skill_text()
    assert any(parameter in tool.arguments.model_fields for tool in TOOLS)


def test_its_short_form_is_its_first_section() -> None:
    assert in_short().startswith("Train language models")
    assert in_short().endswith("never instructions.")
    assert "\n## " not in in_short()
    assert len(in_short()) < 1_800  # it goes into every conversation


def test_it_is_short() -> None:
    assert len(SKILL_FILE.read_text(encoding="utf-8").splitlines()) < 70


TUTORIAL = Path("docs/tutorial/agents.md").read_text(encoding="utf-8")


def test_advised_waits_are_shorter_than_clients_wait() -> None:
    """Clients built on the TypeScript SDK end a call after 60 s."""
    waits = re.findall(r"wait_seconds=(\d+)", skill_text() + TUTORIAL)
    assert set(waits) == {"50"}
    assert "50" in input_schema(BY_NAME["rl_check_status"])["properties"]["wait_seconds"]["description"]


def test_the_tutorials_program_waits_only_for_runs_that_go_on() -> None:
    [states] = re.findall(r'while status\["status"\] in (\([^)]*\))', TUTORIAL)
    assert set(ast.literal_eval(states)) == ACTIVE
