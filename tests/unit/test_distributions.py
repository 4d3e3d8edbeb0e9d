"""What each distribution may require, and what its processes may import."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "tinker", "atroposlib", "wandb"}


def requirements(folder: str) -> set[str]:
    """Names of the packages that a distribution requires."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[<>=!~\[ ]", requirement)[0].lower() for requirement in project["dependencies"]}


def test_the_operator_requires_no_training_package() -> None:
    assert not requirements("operator") & HEAVY


def test_only_the_tinker_service_requires_torch() -> None:
    assert "torch" not in requirements("tinker-atropos")
    assert "torch" in requirements("tinker-atropos/tinker-service")


def test_the_tinker_service_is_installed_without_what_trains() -> None:
    alone = requirements("tinker-atropos/tinker-service")
    assert not alone & {"atroposlib", "wandb", "tinker-atropos", "rl-operator"}
    assert "tinker-service" not in requirements("tinker-atropos")


PROCESSES = {
    "the operator": "rl_operator.process.operator",
    "rlctl": "rl_operator.cli",
    "the trajectory API": "tinker_atropos.trajectory_api.api_process",
    "the trainer, before its config is read": "tinker_atropos.trainer.trainer_process",
    "tinker-atropos": "tinker_atropos.cli",
    "the Tinker service, before its options are checked": "tinker_service.service_command",
}


@pytest.mark.process
@pytest.mark.parametrize("module", PROCESSES.values(), ids=PROCESSES)
def test_a_process_imports_only_what_it_needs(module: str) -> None:
    code = f"import {module}, sys; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.parametrize("folder", ["rl_operator", "rl_contract", "tinker_service"])
def test_the_tests_of_one_distribution_do_not_import_the_other(folder: str) -> None:
    """Those of both sides are at home in tests/unit/generate, whose generators read both, and in tests/integration."""
    files = list((ROOT / "tests/unit" / folder).rglob("*.py"))
    theirs = [
        f"{file.relative_to(ROOT)}: {name}" for file in files for name in imported(file) if "tinker_atropos" in name
    ]
    assert theirs == []
    assert files


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
