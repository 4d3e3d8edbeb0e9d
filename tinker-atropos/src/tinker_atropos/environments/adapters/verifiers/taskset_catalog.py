"""The environments `verifiers/…` for the catalog: the installed tasksets with our fields and theirs, read from source.

A taskset's own fields have dotted names, `taskset.NAME`: in a run's config they are nested in `taskset`.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tinker_atropos.environments.adapters.adapter_fields import our_fields
from tinker_atropos.environments.adapters.verifiers.taskset_sources import (
    TasksetName,
    TasksetSource,
    derives_from,
    is_installed,
    taskset_sources,
)
from tinker_atropos.environments.discovery import Discovery
from tinker_atropos.environments.discovery.config_fields import ConfigField, fields_of
from tinker_atropos.environments.discovery.discovered_folder import DiscoveredEnvironment, DiscoveredFamily
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources

FAMILY: Final = "verifiers"
ENVIRONMENT_CLASS: Final = "VerifiersEnvironment"

CONFIG_FILE: Final = "adapters/verifiers/verifiers_config.py"
ENVIRONMENT_FILE: Final = "environments/adapters/verifiers/verifiers_environment.py"

BASE_CONFIG: Final = "TasksetConfig"
OF_ALL_TASKSETS: Final = (
    ConfigField("task", "dict[str, Any]", {}, "Fields of its tasks, as their config class has them.", {}),
    ConfigField("system_prompt", "str | None", None, "File with a text in place of the tasks' system prompts.", {}),
)
"""The fields of verifiers' own `TasksetConfig` that can be set. Its `id` is the environment's name."""

NESTED: Final = "taskset"


def discover_tasksets() -> Discovery:
    """Empty if verifiers is not installed."""
    if not is_installed():
        return Discovery()
    environments = [_environment(source) for source in taskset_sources().values()]
    described = "Tasksets of Prime Intellect's verifiers (v1): those that are installed."
    common = [each for each in our_fields(CONFIG_FILE, "VerifiersConfig") if each.name != NESTED]  # told one by one
    return Discovery(environments, families=[DiscoveredFamily(FAMILY, described, common)])


def canonical_name(environment: str) -> str:
    """`verifiers/sort_digits` of `verifiers/owner/sort-digits@1.0`, as the catalog lists it."""
    return f"{FAMILY}/{TasksetName.parse(environment.partition('/')[2]).module}"


def _environment(source: TasksetSource) -> DiscoveredEnvironment:
    return DiscoveredEnvironment(
        f"{FAMILY}/{source.module}",
        ENVIRONMENT_CLASS,
        ENVIRONMENT_FILE,
        _description(source),
        [replace(each, name=f"{NESTED}.{each.name}") for each in taskset_fields(source)],
        FAMILY,
    )


def taskset_fields(source: TasksetSource) -> list[ConfigField]:
    """Those of its own config class and of that class' ancestors in the same package, then those of all tasksets."""
    found = {each.name: each for each in OF_ALL_TASKSETS}
    config_class = _config_class(source.sources, source.taskset_class)
    own = fields_of(source.sources, config_class) if config_class else {}
    kept = [each for name, each in own.items() if name not in found and name != "id"]
    return [*kept, *found.values()]


def _config_class(sources: Sources, taskset_class: SourceClass) -> SourceClass | None:
    """The config that the taskset's bases are parametrized with: `Taskset[MyTask, MyConfig]`; None if they are not."""
    for owner in sources.readable_ancestry(taskset_class):
        for argument in _base_arguments(owner.node):
            meaning = sources.resolve(owner.module, argument)
            if isinstance(meaning, SourceClass) and derives_from(sources, meaning, BASE_CONFIG):
                return meaning
    return None


def _base_arguments(node: ast.ClassDef) -> Iterator[ast.expr]:
    for base in node.bases:
        if isinstance(base, ast.Subscript):
            yield from base.slice.elts if isinstance(base.slice, ast.Tuple) else [base.slice]


def _description(source: TasksetSource) -> str:
    """The first line of the docstring of the class, of its module, or of the package."""
    package = source.sources.module_of_file("__init__.py") if "__init__.py" in source.sources.paths else None
    nodes: list[Any] = [
        source.taskset_class.node,
        source.taskset_class.module.tree,
        *([package.tree] if package else []),
    ]
    texts = ((ast.get_docstring(node) or "").strip().partition("\n")[0].strip() for node in nodes)
    return next((text for text in texts if text), "")
