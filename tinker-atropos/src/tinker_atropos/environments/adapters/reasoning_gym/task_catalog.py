"""The environments `reasoning-gym/…` for the catalog: the library's tasks with our fields, read from source, never
imported.

Each task is a module that ends with `register_dataset(NAME, Dataset, Config[, Curriculum])`. A field is described by
the comment behind it, or by the curriculum's attribute of the same field. Its limits are those that the dataclass
states itself: `assert self.min_terms > 0` in one of its methods. Only comparisons with a number are limits of one
field. Chains are read link by link: `0 <= self.p <= 1` has two.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from tinker_atropos.environments.adapters.adapter_fields import our_fields
from tinker_atropos.environments.discovery import Discovery
from tinker_atropos.environments.discovery.annotations import Limits
from tinker_atropos.environments.discovery.config_fields import ConfigField, fields_of
from tinker_atropos.environments.discovery.discovered_folder import DiscoveredEnvironment, DiscoveredFamily
from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name, package_folders
from tinker_atropos.environments.discovery.sources import Sources
from tinker_atropos.environments.discovery.values import text_of

PACKAGE: Final = "reasoning_gym"
REGISTERS: Final = re.compile(rb"^register_dataset\(", re.MULTILINE)
NOT_TASKS: Final = ("composite",)
"""A mixture of other datasets: the environment `mix` is its counterpart."""

OURS: Final = ("seed", "size")
"""Fields that the environment has for all tasks: the library's seed is random, and its sizes are those of tests."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    name: str
    description: str
    fields: tuple[ConfigField, ...]


def is_installed() -> bool:
    return bool(package_folders(PACKAGE))


@cache
def task_sources() -> Mapping[str, TaskSource]:
    """All tasks by name, in alphabetical order; empty if the library is not installed."""
    found = {each.name: each for folder in package_folders(PACKAGE) for each in _tasks_of(Path(folder))}
    return {name: found[name] for name in sorted(found) if name not in NOT_TASKS}


def _tasks_of(folder: Path) -> Iterator[TaskSource]:
    sources = Sources(folder)
    for file, path in sources.paths.items():
        content = path.read_bytes()
        if not REGISTERS.search(content):
            continue
        module = sources.module_of_file(file)
        if module is not None:
            comments = _comments(content)
            for call in _registrations(module):
                yield _task(sources, module, call, comments)


def _registrations(module: Module) -> Iterator[ast.Call]:
    for statement in module.tree.body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="register_dataset")) as call) if len(call.args) >= 3:
                yield call


def _task(sources: Sources, module: Module, call: ast.Call, comments: Mapping[int, str]) -> TaskSource:
    name, dataset, config, *_ = call.args
    dataset_class, config_class = sources.resolve(module, dataset), sources.resolve(module, config)
    docstring = ast.get_docstring(dataset_class.node) if isinstance(dataset_class, SourceClass) else None
    fields = _task_fields(sources, config_class, comments) if isinstance(config_class, SourceClass) else ()
    named = text_of(sources, module, name)
    return TaskSource(named, (docstring or _words(named)).strip().partition("\n")[0], tuple(fields))


def _task_fields(sources: Sources, config: SourceClass, comments: Mapping[int, str]) -> Iterator[ConfigField]:
    said = _curriculum_descriptions(sources, config.module)
    lines = {
        statement.target.id: statement.lineno
        for statement in config.node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    limits = asserted_limits(config.node)
    for name, field in fields_of(sources, config).items():
        if name in OURS:
            continue
        described = comments.get(lines.get(name, 0)) or said.get(name) or _words(name)
        yield replace(field, description=described, limits=limits.get(name, {}) | field.limits)


def _curriculum_descriptions(sources: Sources, module: Module) -> dict[str, str]:
    """By field: what `ScalarAttributeDefinition(field_name=…, description=…)` says."""
    said: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and last_name(node.func) == "ScalarAttributeDefinition":
            given = {keyword.arg: text_of(sources, module, keyword.value) for keyword in node.keywords}
            said[given.get("field_name", "")] = given.get("description", "")
    return said


def _comments(content: bytes) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(content.decode("utf-8")).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


FAMILY: Final = "reasoning-gym"
MIX: Final = "mix"

CONFIG_FILE: Final = "adapters/reasoning_gym/reasoning_gym_environment.py"
ENVIRONMENT_FILE: Final = f"environments/{CONFIG_FILE}"


def discover_tasks() -> Discovery:
    """Empty if the library is not installed."""
    tasks = task_sources().values()
    if not tasks:
        return Discovery()
    environments = [
        DiscoveredEnvironment(
            f"{FAMILY}/{task.name}", "ReasoningGymTask", ENVIRONMENT_FILE, task.description, list(task.fields), FAMILY
        )
        for task in tasks
    ]
    described = f"{len(tasks)} procedural tasks with graders, by Open-Thought."
    mix = DiscoveredEnvironment(
        f"{FAMILY}/{MIX}",
        "ReasoningGymMix",
        ENVIRONMENT_FILE,
        "Several tasks of reasoning-gym, by weight.",
        our_fields(CONFIG_FILE, "MixConfig"),
    )
    return Discovery(
        [*environments, mix], families=[DiscoveredFamily(FAMILY, described, our_fields(CONFIG_FILE, "TaskConfig"))]
    )


_LIMITS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: "minimum",
    ast.Gt: "exclusive_minimum",
    ast.LtE: "maximum",
    ast.Lt: "exclusive_maximum",
}
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.GtE: ast.LtE,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.Lt: ast.Gt,
}


def asserted_limits(node: ast.ClassDef) -> dict[str, Limits]:
    """By field."""
    found: dict[str, Limits] = {}
    asserted = (each.test for each in ast.walk(node) if isinstance(each, ast.Assert))
    for test in asserted:
        for field, limit, value in _comparisons(test):
            found.setdefault(field, {})[limit] = value
    return found


def _comparisons(test: ast.expr) -> Iterator[tuple[str, str, object]]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from _comparisons(part)
    if not isinstance(test, ast.Compare):
        return
    sides = [test.left, *test.comparators]
    for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
        operator = type(op)
        if operator not in _LIMITS:
            continue
        if (field := _own_field(left)) and (number := _number(right)) is not None:
            yield field, _LIMITS[operator], number
        elif (field := _own_field(right)) and (number := _number(left)) is not None:
            yield field, _LIMITS[_MIRRORED[operator]], number


def _own_field(node: ast.expr) -> str | None:
    """`self.NAME`."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def _number(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
