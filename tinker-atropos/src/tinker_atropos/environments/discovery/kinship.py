"""Which classes are environments, and which are configs, by their direct and indirect base classes."""

from typing import Final

from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.sources import Foreign, Sources

BASE_CLASS: Final = "BaseEnv"
BASE_CONFIG: Final = "BaseEnvConfig"
_PLAIN_MODULES: Final = {"builtins", "typing", "typing_extensions", "abc", "enum", "dataclasses", "pydantic"}


def is_environment(sources: Sources, source_class: SourceClass) -> bool:
    return _derives_from(sources, source_class, BASE_CLASS) and not _is_atropos(source_class, BASE_CLASS)


def derives_from_config(sources: Sources, source_class: SourceClass) -> bool:
    return _derives_from(sources, source_class, BASE_CONFIG)


def may_derive_from_config(sources: Sources, source_class: SourceClass) -> bool:
    """Whether it does, or has an ancestor that cannot be read."""
    foreign = (each for each in sources.ancestry(source_class) if isinstance(each, Foreign))
    return derives_from_config(sources, source_class) or any(each.module not in _PLAIN_MODULES for each in foreign)


def own_environments(sources: Sources, module: Module) -> list[SourceClass]:
    """The environments that a module defines for use, by the rules of `runner/loading/environment_loader.py`: those
    that the file starts, else all except those that others of them derive from and those that list ABC among their
    bases.
    """
    written = (SourceClass(module, node) for node in module.classes.values())
    own = [each for each in written if is_environment(sources, each)]
    bases = {base for each in own for base in sources.ancestry(each)[1:]}
    final = [each for each in own if each not in bases and not _is_abstract(each)]
    return [each for each in own if each.name in module.started] or final


def served_environments(sources: Sources, module: Module) -> list[SourceClass]:
    """The classes that the runner would choose from for this file; it serves one only if there is exactly one. A file
    may also start an environment that it imports.
    """
    started = (sources.lookup(module, name) for name in module.started)
    found = [each for each in started if isinstance(each, SourceClass) and is_environment(sources, each)]
    return list(dict.fromkeys(found)) or own_environments(sources, module)


def _is_abstract(source_class: SourceClass) -> bool:
    return "ABC" in map(last_name, source_class.node.bases)


def _derives_from(sources: Sources, source_class: SourceClass, root: str) -> bool:
    """Compares with atroposlib's own class if that can be read, else by name."""
    return any(
        each.name == root if isinstance(each, Foreign) else _is_atropos(each, root)
        for each in sources.ancestry(source_class)
    )


def _is_atropos(source_class: SourceClass, name: str) -> bool:
    return source_class.name == name and source_class.module.name.startswith("atroposlib.")
