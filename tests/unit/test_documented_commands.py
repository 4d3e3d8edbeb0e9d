"""Every command and every YAML block of README, docs and examples, read by what would run it.

Some of them are run as well: tests/integration/cluster/test_documented_commands.py and its namesake in local/.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import click
import pytest
import typer
import yaml
from release import distributions
from tests.documented import ROOT, SHELLS, Block, Command, blocks, commands

from rl_operator.api.names import API_VERSION, GROUP
from rl_operator.cli.app import app as rlctl
from rl_operator.cli.commands.environments import DefaultsToShow
from rl_operator.documents.parse import parse_environment, parse_run, parse_runtime
from rl_operator.documents.yaml_text import read_yaml
from tinker_atropos.cli import app as tinker_atropos
from tinker_atropos.config.run_config import parse_config
from tinker_service.service_command import app as tinker_service

SHOWN = {
    ("README.md", "spec.config.group_sise is 8:"): "a refusal: its parts are in tests/data/refusals.yaml",
    ("docs/explanation/reconcile.md", "event or time -> key"): "pseudocode",
    ("docs/explanation/training.md", "for step in range("): "pseudocode",
    ("docs/reference/tinker-service.md", "-stop_gradient("): "a formula",
    ("docs/how-to/gitops.md", "sorting: trained sort_digits"): "what a run prints",
    ("docs/tutorial/laptop.md", "sorting is created"): "what a run prints",
    ("docs/tutorial/laptop.md", "Running   step"): "what a run prints",
    ("docs/how-to/own-environments.md", '{"event": "started"'): "what a trial prints",
    ("docs/reference/settings.md", 'The rltrainingruns "sorting" is invalid'): "what kubectl prints",
    ("docs/tutorial/agents.md", "rl_list_environments("): "calls of tools: tests/integration/tools/",
    ("docs/tutorial/agents.md", "rl_edit_config("): "calls of tools: tests/integration/tools/",
    ("docs/tutorial/agents.md", "rl_start_training("): "calls of tools: tests/integration/tools/",
    ("examples/rl_loop.py", "P prompts, G completions"): "the notation",
}
"""Blocks without a command, by page and the beginning of their first line, and why there is none."""

NOT_READ = {
    "kind": "not of this project",
    "flux": "not of this project",
    "hermes": "not of this project; tests/unit/rl_operator/tools runs its loader",
    "curl": "routes and answers: tests/integration/tools/test_agents.py",
    **dict.fromkeys((".", "cat", "cd", "cp", "export", "for", "grep", "mkdir", "printf", "xargs"), "a shell's own"),
}
"""Programs whose arguments nothing here can judge."""

WRONG_ON_PURPOSE = {"helm install rl-operator charts/rl-operator --set settings.pollSecond=10"}
"""The page shows how it is refused."""


# --- nothing is passed over ----------------------------------------------------------------------------------------
def test_every_block_is_judged_or_has_a_reason() -> None:
    others = [block for block in blocks() if block.language in SHELLS and not block.commands]
    assert [f"{block.page}:{block.line}: {block.head}" for block in others if not _shown(block)] == []
    assert len(others) == len(SHOWN), "an entry of SHOWN names no block"
    assert {block.language for block in blocks()} - {*SHELLS} == {*LANGUAGES}


def _shown(block: Block) -> bool:
    return any(page == block.page and block.head.startswith(head) for page, head in SHOWN)


def test_the_expressions_find_what_they_look_for() -> None:
    assert len(commands()) > 120
    assert len([call for command in commands() for call in command.calls if call[0] in READERS]) > 100


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_command_is_one_that_its_program_knows(command: Command) -> None:
    for name, *arguments in command.calls:
        assert name in READERS or name in NOT_READ, f"nothing reads {name}: give it a reader, or a reason"
        if name in READERS and command.text not in WRONG_ON_PURPOSE:
            READERS[name](arguments)


# --- programs --------------------------------------------------------------------------------------------------------
def _read_by(app: typer.Typer) -> Callable[[Sequence[str]], None]:
    """The real parser, without calling the command."""

    def read(arguments: Sequence[str]) -> None:
        command: Any = typer.main.get_command(app)
        rest = [*arguments]
        while hasattr(command, "commands"):
            if isinstance(command, DefaultsToShow):
                rest = command.with_command(rest)
            assert rest, "a command is missing"
            name = rest.pop(0)
            assert name in command.commands, f"no such command: {name}"
            command = command.commands[name]
        try:
            command.make_context(str(command.name), rest)
        except click.ClickException as error:
            pytest.fail(error.format_message())

    return read


KUBECTL = {
    "apply": {"-f", "--server-side", "--field-manager", "--force-conflicts", "--dry-run"},
    "create": {"--from-literal", "--from-file", "--duration"},
    "delete": {"-f", "--all", "-A"},
    "describe": set[str](),
    "get": {"-w", "-o", "-A"},
    "label": set[str](),
    "patch": {"--type", "-p"},
    "port-forward": set[str](),
    "rollout": set[str](),
    "wait": {"--for", "--timeout"},
}
"""The verbs that pages use, and the options of each besides the namespace's."""

WITH_VALUE = {"-n", "-f", "-o", "-p", "-c", "--type"}
OF_KUBERNETES = {"configmap", "crd", "deployment", "namespace", "pod", "secret", "service", "token"}


@cache
def _kinds() -> set[str]:
    """What kubectl accepts for our kinds."""
    definitions = [yaml.safe_load(file.read_text())["spec"]["names"] for file in ROOT.glob(f"crds/{GROUP}_*.yaml")]
    return {name for names in definitions for name in (names["plural"], names["singular"], *names["shortNames"])}


def _read_kubectl(arguments: Sequence[str]) -> None:
    words, options = _words_and_options(arguments)
    verb, *things = words
    allowed = {"-n", "--namespace", *KUBECTL[verb]}
    assert set(options) <= allowed, f"kubectl {verb} is not used here with {set(options) - allowed}"
    for file in options.get("-f", ()):
        assert (ROOT / file).exists() or (ROOT / "examples/gitops" / file).exists(), f"{file} does not exist"
    if verb == "wait":
        assert "--timeout" in options, "kubectl waits 30 s by default, and a run takes longer"
    if verb not in ("apply", "rollout") and things:
        named = {thing.partition("/")[0] for thing in things if "/" in thing and "=" not in thing} or {things[0]}
        assert named <= _kinds() | OF_KUBERNETES, f"no such kind: {named}"


def _read_helm(arguments: Sequence[str]) -> None:
    words, options = _words_and_options(arguments, with_value={"-n", "--set", "--timeout"})
    assert words[0] in ("install", "upgrade", "uninstall", "test", "package", "push"), words
    assert set(options) <= {"-n", "--set", "--wait", "--timeout", "--logs"}, options
    if words[0] != "install":
        return
    values = yaml.safe_load((ROOT / words[2] / "values.yaml").read_text(encoding="utf-8"))
    for assignment in ",".join(options.get("--set", ())).split(","):
        _look_up(values, assignment.partition("=")[0])


def _look_up(values: Any, path: str) -> None:
    for key in filter(None, path.split(".")):
        assert key in values, f"the chart has no value {path}"
        values = values[key]


def _read_make(arguments: Sequence[str]) -> None:
    targets = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {argument for argument in arguments if "=" not in argument} <= set(targets)


def _read_pip(arguments: Sequence[str]) -> None:
    """Our distributions have the extras that are asked for, and the service comes with what trains on this machine."""
    projects = [tomllib.loads((each.folder / "pyproject.toml").read_text()) for each in distributions(ROOT)]
    extras = {each["project"]["name"]: each["project"].get("optional-dependencies", {}) for each in projects}
    assert arguments[0] == "install"
    ours = " ".join(arguments)
    assert "tinker-atropos" not in ours or "tinker-service" in ours, "without it nothing trains on this machine"
    for requirement in arguments[1:]:
        name, _, extra = requirement.rstrip("]").partition("[")
        assert not extra or extra in extras[name], f"{name} has no extra {extra!r}"


def _read_python(arguments: Sequence[str]) -> None:
    assert (ROOT / arguments[0]).exists()


def _words_and_options(
    arguments: Sequence[str], with_value: set[str] = WITH_VALUE
) -> tuple[list[str], dict[str, list[str]]]:
    words, options = list[str](), dict[str, list[str]]()
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument.startswith("-"):
            options.setdefault(name, []).append(value if equals else next(left) if name in with_value else "")
        elif argument != "$":  # what a command in `$( )` gives
            words.append(argument)
    return words, options


READERS: dict[str, Callable[[Sequence[str]], None]] = {
    "rlctl": _read_by(rlctl),
    "tinker-atropos": _read_by(tinker_atropos),
    "tinker-service": _read_by(tinker_service),
    "kubectl": _read_kubectl,
    "helm": _read_helm,
    "make": _read_make,
    "pip": _read_pip,
    "python": _read_python,
}


# --- blocks in other languages ---------------------------------------------------------------------------------------
def _read_yaml(block: Block) -> None:
    for document in read_yaml(block.text):
        if "apiVersion" not in document and "spec" not in document:
            parse_config(document)
            continue
        # A part of a page's file: what is shown is the spec of a run.
        whole = {"apiVersion": API_VERSION, "kind": "RLTrainingRun", "metadata": {"name": "shown"}, **document}
        if whole["apiVersion"] == API_VERSION:
            {"RLTrainingRun": parse_run, "RLRuntime": parse_runtime, "RLEnvironment": parse_environment}[whole["kind"]](
                whole
            )
        else:
            assert whole["kind"] in RBAC, f"{whole['kind']} is read by nothing"


RBAC = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
"""tests/integration/tools/test_agents.py applies them."""


def _read_json(block: Block) -> None:
    for server in json.loads(block.text)["mcpServers"].values():
        assert server["command"].endswith("/rlctl")
        READERS["rlctl"](server["args"])


LANGUAGES: dict[str, Callable[[Block], object]] = {
    "yaml": _read_yaml,
    "json": _read_json,
    "python": lambda block: ast.parse(block.text),
    "mermaid": lambda block: block.head,  # drawn by the site that shows it
    "text": lambda block: block.head,  # docs/reference/settings.md: tests/unit/rl_operator/test_settings_page.py
}


@pytest.mark.parametrize(
    "block",
    [block for block in blocks() if block.language in LANGUAGES],
    ids=lambda block: f"{block.page}:{block.line}",
)
def test_a_block_in_another_language_is_readable(block: Block) -> None:
    LANGUAGES[block.language](block)
