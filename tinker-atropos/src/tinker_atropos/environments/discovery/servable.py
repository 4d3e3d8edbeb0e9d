"""Whether a file can be served as an environment and, if not, why, with file and line."""

import ast

from tinker_atropos.environments.discovery.config_class import config_class_problem
from tinker_atropos.environments.discovery.import_check import (
    ImportRoot,
    import_problem,
    import_root,
    init_files,
    name_problem,
)
from tinker_atropos.environments.discovery.kinship import served_environments
from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.source_parser import Problem, compile_problem
from tinker_atropos.environments.discovery.sources import Foreign, Sources

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
    """What a class is instead of an environment."""
    if "ABC" in map(last_name, source_class.node.bases):
        return f"{source_class.name} lists ABC among its bases, so it is there to be derived from"
    unread = [each for each in sources.ancestry(source_class) if isinstance(each, Foreign) and each.module]
    elsewhere = ", ".join(f"{each.module}.{each.name}" for each in unread if each.module != "builtins")
    if elsewhere:
        return f"{source_class.name} derives from {elsewhere}, which cannot be read here"
    bases = ", ".join(map(ast.unparse, source_class.node.bases))
    return f"{source_class.name} derives from {bases}" if bases else f"{source_class.name} derives from nothing"
