"""From a file to a configured instance of the environment in it."""

import ast
import importlib
import importlib.util
import inspect
import sys
from abc import ABC
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from atroposlib.envs.base import BaseEnv

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.environments.base import draws_items
from tinker_atropos.environments.discovery.import_check import TAKEN_NAMES, imports_relatively, taken_sentence
from tinker_atropos.environments.discovery.modules import Module
from tinker_atropos.environments.discovery.source_parser import UnreadableSourceError, parse_file
from tinker_atropos.environments.rollout.failures import authors_code
from tinker_atropos.environments.runner.loading.environment_config import Wiring, configure, seed_is_open
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment
from tinker_atropos.environments.runner.policy_requests import install_policy_servers, install_prompt_logprobs
from tinker_atropos.errors import ConfigError
from tinker_atropos.library_imports import uncollected

TEACHER_SERVERS = "teacher_server_configs"
"""The argument of atroposlib's TeacherDistillationEnv, which is newer than its last release."""


@dataclass(frozen=True, slots=True)
class LoadedEnvironment:
    """An environment class and the file that defines it."""

    environment_class: Any
    source: Path

    def config_init(self) -> tuple[Any, Any]:
        """The author's own config, and server settings. Raises EnvironmentLostError if the class raises."""
        with authors_code("in config_init", self.source):
            config, servers = self.environment_class.config_init()
        return config, servers

    def _teacher_config_init(self) -> list[object] | None:
        """The servers of a teacher that atroposlib's TeacherDistillationEnv is built with; None for all others."""
        if TEACHER_SERVERS not in inspect.signature(self.environment_class).parameters:
            return None
        with authors_code("in teacher_config_init", self.source):
            found = self.environment_class.teacher_config_init()
        return found if isinstance(found, list) else [] if found is None else [found]

    def build(self, run: RunConfig, wiring: Wiring) -> Any:
        """An instance, configured for the run. Raises ConfigError, or EnvironmentLostError if the class raises."""
        name = self.environment_class.name or self.source.stem
        teachers, own = self._teacher_config_init(), self.config_init()
        config, configured = configure(own, run, wiring, name, teachers)
        if draws_items(self.environment_class) and seed_is_open(own[0], run):
            config.seed = run.tinker.seed
        servers: dict[str, Any] = {"server_configs": configured}
        if teachers is not None:
            policy, *others = configured
            servers = {"server_configs": [policy], TEACHER_SERVERS: others or None}
        install_prompt_logprobs()
        if len(servers["server_configs"]) > 1:
            install_policy_servers()
        with authors_code("while it was built", self.source):
            # As atroposlib builds it: many environments default to slurm=True, and then look for a cluster.
            return self.environment_class(config=config, **servers, slurm=False, testing=False)


def load_environment(located: LocatedEnvironment) -> LoadedEnvironment:
    """Import an environment.

    Raises ConfigError if the file does not define exactly one, EnvironmentLostError if it cannot be imported.
    """
    if located.module is not None and located.name_in_library is not None:
        with uncollected():  # an author's file may load data when it is imported: not around that
            adapter = importlib.import_module(located.module)
        return LoadedEnvironment(adapter.environment_class(located.name_in_library), located.file)
    if located.module is not None and located.class_name is not None:
        return LoadedEnvironment(getattr(importlib.import_module(located.module), located.class_name), located.file)
    module = _import_file(located.file)
    classes = _started_classes(module, located.file) or _environment_classes(module)
    if len(classes) != 1:
        found = ", ".join(each.__name__ for each in classes) or "none"
        raise ConfigError(
            f"{located.file.name} must define exactly one environment, a class derived from BaseEnv; it has {found} "
            f"(of several, the one is taken whose cli() the file calls, or that derives from the others)"
        )
    return LoadedEnvironment(classes[0], located.file)


def _import_file(path: Path) -> ModuleType:
    """Import a user's file without writing to its folder, which may be a ConfigMap."""
    sys.dont_write_bytecode = True
    top = _top_package(path)
    if top is None:
        _refuse_taken_names(path.parent)
        sys.path.insert(0, str(path.parent))  # like `python FILE`
        loaded, name = path, path.stem
    else:
        _refuse_taken_package(top)
        sys.path.append(str(top.parent))  # for processes that it spawns; last: what is beside the package is not ours
        loaded, name = top / "__init__.py", ".".join([top.name, *path.relative_to(top).with_suffix("").parts])
    with authors_code("while it was imported", path):
        module = _executed(loaded, name.partition(".")[0])
        return module if top is None else importlib.import_module(name)


def _executed(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)  # of an __init__.py: a package
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported as Python: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _top_package(path: Path) -> Path | None:
    """The folder to import from, as `python -m package.file` does, if the file says that it belongs to a package.
    Discovery's import_check.import_root decides the same within the folder that it searches, and never looks above.
    """
    folder = path.parent
    if path.name == "__init__.py" or not _has_init(folder) or not _says_it_is_in_a_package(path):
        return None
    while _has_init(folder.parent):
        folder = folder.parent
    return folder


def _has_init(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _says_it_is_in_a_package(path: Path) -> bool:
    try:
        return imports_relatively(Module(path.stem, path.name, is_package=False, tree=parse_file(path)))
    except UnreadableSourceError:  # its import will say why
        return False


def _refuse_taken_package(folder: Path) -> None:
    """The package gets the folder's name, which nothing else may have."""
    name = folder.name
    if "." in name:
        raise ConfigError(f"the folder {name!r} is a package, and its name must not contain a dot: rename it")
    found = None if name in TAKEN_NAMES else importlib.util.find_spec(name)
    if name in TAKEN_NAMES or (found is not None and found.origin != str(folder / "__init__.py")):
        raise ConfigError(f"the folder {name!r} is a package, and {taken_sentence(name)}")


def _refuse_taken_names(folder: Path) -> None:
    """If a file has the name of an installed module, it is unclear which of the two an import gets."""
    for path in sorted(folder.iterdir()):
        name = path.stem if path.suffix == ".py" else path.name if (path / "__init__.py").is_file() else ""
        if name in TAKEN_NAMES or _is_installed(sys.modules.get(name)):
            raise ConfigError(f"{path.name} cannot be imported: {taken_sentence(name)}")


def _is_installed(module: ModuleType | None) -> bool:
    return "site-packages" in Path(getattr(module, "__file__", None) or "").parts


def _started_classes(module: ModuleType, path: Path) -> list[type]:
    """The environments that the file itself would start: `MyEnv.cli()`, as atroposlib's files end."""
    names = Module(path.stem, path.name, is_package=False, tree=ast.parse(path.read_bytes())).started
    return [each for name, each in vars(module).items() if name in names and _is_environment(each)]


def _environment_classes(module: ModuleType) -> list[type]:
    """The concrete environments that a module itself defines, without those that others of them derive from. A class
    that lists ABC among its bases is a base, too.
    """
    found = (each for each in vars(module).values() if _is_environment(each) and each.__module__ == module.__name__)
    own = list(dict.fromkeys(found))  # once each, in source order: a class may have two names
    bases = {base for each in own for base in each.__mro__[1:]}
    return [each for each in own if each not in bases and ABC not in each.__bases__]


def _is_environment(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseEnv) and value is not BaseEnv
