"""Every variable has somebody who sets it and somebody who reads it, told from the sources of both sides."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from rl_contract import env_vars
from rl_contract.env_vars import VARIABLES

ROOT = Path(__file__).resolve().parents[3]
SOURCES = {"operator": ROOT / "operator" / "src", "processes": ROOT / "tinker-atropos" / "src"}
GOLDEN = sorted((ROOT / "tests" / "data" / "golden" / "render").glob("*pod.yaml"))

OWN = frozenset(
    {
        "RL_STATE_DIR", "RL_LOCAL", "RL_CONTEXT", "RL_NAMESPACE",  # of rlctl and the page
        "RL_SANDBOX_COMMAND", "RL_NO_API_KEY",  # within an environment
        "RL_MODEL", "RL_PROMPT", "RL_ITEM",  # of the programs that a harness starts
    }
)  # fmt: skip
"""Of one side alone. `RL_OPERATOR_*` are settings of the operator's process."""


@cache
def trees(side: str) -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES[side].rglob("*.py"))


@cache
def used(side: str) -> frozenset[str]:
    """The constants that a side imports, or names as `variables.RL_…`."""
    nodes = [node for tree in trees(side) for node in ast.walk(tree)]
    imports = [each for each in nodes if isinstance(each, ast.ImportFrom) and each.module == "rl_contract.env_vars"]
    named = {each.attr for each in nodes if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "variables"}
    found = named.union(alias.name for each in imports for alias in each.names)
    return frozenset(found | set(env_vars.STORE_KEYS) if "STORE_KEYS" in found else found)


def texts(side: str) -> Iterator[str]:
    nodes = (node for tree in trees(side) for node in ast.walk(tree))
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("name", VARIABLES)
def test_a_constant_is_named_like_its_variable(name: str) -> None:
    assert getattr(env_vars, name) == name


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=VARIABLES)
def test_what_one_side_sets_the_other_reads(variable: env_vars.Variable) -> None:
    processes = set(variable.read_by) - {"library"}
    assert ("operator" in variable.set_by) <= (variable.name in used("operator")), "the operator does not set it"
    assert bool(processes) == (variable.name in used("processes")), "read by nobody, or by processes not named here"
    assert variable.read_by or variable is VARIABLES[env_vars.RL_OPENENV_PORT]
    assert variable.meaning


@pytest.mark.parametrize("side", SOURCES)
def test_no_side_has_a_variable_that_the_table_lacks(side: str) -> None:
    named = {name for text in texts(side) for name in re.findall(r"\bRL_[A-Z][A-Z_]*[A-Z]\b", text)}
    others = {name for name in named - VARIABLES.keys() - OWN if not name.startswith("RL_OPERATOR_")}
    assert not others


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_a_container_gets_only_what_its_process_reads(path: Path) -> None:
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for name in (each["name"] for each in container.get("env", ()) if each["name"] in VARIABLES):
            readers = VARIABLES[name].read_by
            assert not readers or {container["name"], "library"} & set(readers), (container["name"], name)
