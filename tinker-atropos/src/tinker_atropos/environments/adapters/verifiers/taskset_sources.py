"""Which tasksets are installed, and where their source is. Nothing of verifiers or of a taskset is imported.

verifiers brings some along. Others are top-level modules of installed distributions that require it, or in the folders
that RL_TASKSETS lists: a module that exports exactly one class derived from `Taskset` in its `__all__`.

A taskset's name has the forms that verifiers takes: `sort-digits`, `owner/sort_digits`, `sort_digits@1.2.0`.
"""

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final, Self

from rl_contract.env_vars import RL_TASKSETS
from tinker_atropos.environments.discovery.modules import Module, SourceClass, package_folders
from tinker_atropos.environments.discovery.sources import Foreign, Sources


@dataclass(frozen=True, slots=True)
class TasksetName:
    """`module` is what is imported: the name without its owner, with `_` for `-`. `version` None: any will do."""

    module: str
    version: str | None = None

    @classmethod
    def parse(cls, name: str) -> Self:
        plain, _, version = name.rpartition("/")[2].partition("@")
        return cls(plain.replace("-", "_").lower(), version or None)


LIBRARY: Final = "verifiers"
BUNDLED: Final = Path("v1", "tasksets")
BASE_CLASS: Final = "Taskset"

_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TasksetSource:
    """A taskset's class as it is written. `distribution` None: a file that is not installed."""

    module: str
    sources: Sources
    taskset_class: SourceClass
    distribution: Distribution | None

    @property
    def version(self) -> str | None:
        return self.distribution.version if self.distribution else None


def is_installed() -> bool:
    return bool(package_folders(LIBRARY))


def taskset_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders that RL_TASKSETS lists, separated as in PATH."""
    return [Path(each) for each in environ.get(RL_TASKSETS, "").split(os.pathsep) if each]


def taskset_sources() -> dict[str, TasksetSource]:
    """By module name, sorted. As verifiers looks for them: its own come before others of the same name."""
    if not is_installed():
        return {}
    found: dict[str, TasksetSource] = {}
    for place, distribution in _places():
        name = place.stem
        if name.startswith("_") or name in found:
            continue
        if source := _read(place, distribution):
            found[name] = source
    return dict(sorted(found.items()))


def _places() -> Iterator[tuple[Path, Distribution | None]]:
    installed = {_normalized(each.name): each for each in distributions()}
    for library in package_folders(LIBRARY):
        yield from ((place, installed.get(LIBRARY)) for place in _modules_in(Path(library) / BUNDLED))
    for distribution in installed.values():
        if _requires_library(distribution):
            for name in _top_level(distribution):
                if place := _place_of(name):
                    yield place, distribution
    for folder in taskset_folders():
        yield from ((place, None) for place in _modules_in(folder))


def _modules_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file())


def _requires_library(distribution: Distribution) -> bool:
    named = (_REQUIREMENT.match(each) for each in distribution.requires or ())
    return any(each is not None and _normalized(each.group()) == LIBRARY for each in named)


def _top_level(distribution: Distribution) -> Iterable[str]:
    """The modules of a distribution. One that is installed for editing does not list them: they have its name."""
    parts = [each.parts for each in distribution.files or () if each.suffix == ".py"]
    listed = {each[0].removesuffix(".py") for each in parts if len(each) <= 2}
    return sorted(listed) or [_normalized(distribution.name).replace("-", "_")]


def _place_of(name: str) -> Path | None:
    spec = importlib.util.find_spec(name) if name.isidentifier() and name not in sys.builtin_module_names else None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _read(place: Path, distribution: Distribution | None) -> TasksetSource | None:
    """None if the module exports no taskset, several, or cannot be read."""
    sources, file = (Sources(place), "__init__.py") if place.is_dir() else (Sources.of_file(place), place.name)
    module = sources.module_of_file(file)
    try:
        exported = _exported_tasksets(sources, module) if module else []
    except RecursionError:
        return None
    return TasksetSource(place.stem, sources, exported[0], distribution) if len(exported) == 1 else None


def _exported_tasksets(sources: Sources, module: Module) -> list[SourceClass]:
    found = (sources.lookup(module, name) for name in _exported_names(module))
    return [each for each in found if isinstance(each, SourceClass) and derives_from(sources, each, BASE_CLASS)]


def _exported_names(module: Module) -> list[str]:
    try:
        names = ast.literal_eval(module.constants.get("__all__", ast.List([])))
    except ValueError:
        return []
    return [each for each in names if isinstance(each, str)] if isinstance(names, list | tuple) else []


def derives_from(sources: Sources, source_class: SourceClass, name: str) -> bool:
    """Whether an ancestor outside of what is read has this name: of verifiers nothing is read here."""
    return any(isinstance(each, Foreign) and each.name == name for each in sources.ancestry(source_class))


def _normalized(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()
