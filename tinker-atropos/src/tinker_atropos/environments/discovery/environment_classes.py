"""Which classes are environments, which config class each has, and whether a file can be served as an environment: if
not, why, with file and line. All by direct and indirect base classes.
"""

import ast
from collections.abc import Sequence
from typing import Final

from tinker_atropos.environments.discovery.import_check import (
    ImportRoot,
    import_problem,
    import_root,
    init_files,
    name_problem,
)
from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.source_parser import Problem, compile_problem
from tinker_atropos.environments.discovery.sources import Constant, Foreign, Meaning, Sources

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


OUR_BASE = ("tinker_atropos.environments.base", "SampledEnvironment")


def draws_items(ancestry: Sequence[SourceClass]) -> bool:
    """As `environments.base.draws_items`: whether the nearest `get_next_item` is not our base class'."""
    owner = next((each for each in ancestry if each.method("get_next_item")), None)
    return owner is None or (owner.module.name, owner.name) != OUR_BASE


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


ATTRIBUTE = "env_config_cls"


def declared_config_class(sources: Sources, ancestry: list[SourceClass]) -> SourceClass | None:
    """The class that the nearest `env_config_cls` names; None if it cannot be read."""
    for owner in ancestry:
        if (expression := owner.attribute(ATTRIBUTE)) is not None:
            meaning = _meaning(sources, owner, expression)
            return meaning if isinstance(meaning, SourceClass) else None
    return None


def config_class_problem(sources: Sources, ancestry: list[SourceClass]) -> Problem | None:
    """A problem if the nearest `env_config_cls` is definitely not a config class. What cannot be read passes."""
    for owner in ancestry:
        if (expression := owner.attribute(ATTRIBUTE)) is not None:
            fault = _fault(sources, owner, expression)
            where = f"{owner.name}.{ATTRIBUTE} is {ast.unparse(expression)}"
            message = f"{where}, {fault}: name a class derived from {BASE_CONFIG}"
            return Problem("WrongConfigClass", owner.module.file, expression.lineno, message) if fault else None
    return None


def _meaning(sources: Sources, owner: SourceClass, expression: ast.expr) -> Meaning | None:
    nested = owner.nested(expression.id) if isinstance(expression, ast.Name) else None
    return nested or sources.resolve(owner.module, expression)


def _fault(sources: Sources, owner: SourceClass, expression: ast.expr) -> str:
    no_config = f"which is not derived from {BASE_CONFIG}"
    match _meaning(sources, owner, expression):
        case SourceClass() as found:
            return "" if may_derive_from_config(sources, found) else no_config
        case Foreign(module="builtins") | Module():
            return no_config
        case Constant(expression=value):
            return no_config if isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set) else ""
        case None if isinstance(expression, ast.Constant):
            return no_config
        case None if isinstance(expression, ast.Name) and not _is_bound(sources, owner, expression.id):
            return "which is not defined"
    return ""


def _is_bound(sources: Sources, owner: SourceClass, name: str) -> bool:
    """Whether a name is bound in a class body or its module, or imported from a module that is not read."""
    if any(name == bound for bound, _ in owner.attributes):
        return True
    imports = owner.module.imports.get(name)
    if imports is None:
        return name in owner.module.defined
    origins = ((each, sources.imported(owner.module, each)) for each in imports)
    return any(
        origin is None or each.name is None or each.name in origin.defined or bool(origin.star_imports)
        for each, origin in origins
    )


CHOICE = "of several, the one is taken whose cli() the file calls, or that derives from the others"


def files_imported(sources: Sources, entry: Module) -> list[str]:
    """The files of the folder that an entry imports directly or indirectly, itself first."""
    files = [entry.file, *init_files(entry, import_root(entry, sources.paths))]
    for file in files:  # grows during the iteration
        module = sources.module_of_file(file)
        files += [each for each in (sources.imported_files(module) if module else ()) if each not in files]
    return files


def entry_problem(sources: Sources, entry: Module, files: list[str]) -> Problem | None:
    """The first reason why the entry, which imports these files, cannot be served."""
    root = import_root(entry, sources.paths)
    if problem := name_problem(entry, sources.paths, root):
        return problem
    for file in files:
        if problem := _file_problem(sources, file, root):
            return problem
    served = served_environments(sources, entry)
    if len(served) == 1:
        return config_class_problem(sources, sources.readable_ancestry(served[0]))
    return _several(entry, served) if served else _none(sources, entry)


def _file_problem(sources: Sources, file: str, root: ImportRoot) -> Problem | None:
    module = sources.module_of_file(file)
    if module is None:
        return sources.problems[file]
    fault = compile_problem(module.tree)
    return fault.as_problem(file) if fault else import_problem(root, module)


def _several(entry: Module, served: list[SourceClass]) -> Problem:
    names = ", ".join(each.name for each in served)
    line = served[1].node.lineno if served[1].module is entry else None
    message = f"it must define exactly one environment, and it has {names} ({CHOICE})"
    return Problem("SeveralEnvironments", entry.file, line, message)


def _none(sources: Sources, entry: Module) -> Problem:
    needed = "it must define exactly one environment, a class derived from BaseEnv (atroposlib.envs.base)"
    if not entry.classes:
        return Problem("NoEnvironment", entry.file, None, f"{needed}, and it has no class at all")
    told = (_why_none(sources, SourceClass(entry, node)) for node in entry.classes.values())
    node = next(reversed(entry.classes.values()))
    return Problem("NoEnvironment", entry.file, node.lineno, f"{needed}; {'; '.join(list(told)[:3])}")


def _why_none(sources: Sources, source_class: SourceClass) -> str:
    if _is_abstract(source_class):
        return f"{source_class.name} lists ABC among its bases, so it is there to be derived from"
    unread = [each for each in sources.ancestry(source_class) if isinstance(each, Foreign) and each.module]
    elsewhere = ", ".join(f"{each.module}.{each.name}" for each in unread if each.module != "builtins")
    if elsewhere:
        return f"{source_class.name} derives from {elsewhere}, which cannot be read here"
    bases = ", ".join(map(ast.unparse, source_class.node.bases))
    return f"{source_class.name} derives from {bases}" if bases else f"{source_class.name} derives from nothing"
