"""Which tasks reasoning-gym has, and which fields each has: read from its source, never imported.

Each task is a module that ends with `register_dataset(NAME, Dataset, Config[, Curriculum])`. A field is described by
the comment behind it, or by the curriculum's attribute of the same field.
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

from tinker_atropos.environments.discovery.config_fields import ConfigField, fields_of
from tinker_atropos.environments.discovery.dataclass_limits import asserted_limits
from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.packages import package_folders
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
    fields = _fields(sources, config_class, comments) if isinstance(config_class, SourceClass) else ()
    named = text_of(sources, module, name)
    return TaskSource(named, (docstring or _words(named)).strip().partition("\n")[0], tuple(fields))


def _fields(sources: Sources, config: SourceClass, comments: Mapping[int, str]) -> Iterator[ConfigField]:
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
    """The comments by line."""
    tokens = tokenize.generate_tokens(io.StringIO(content.decode("utf-8")).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()
