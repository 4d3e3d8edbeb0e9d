"""From a name or a path to a file, before anything heavy is imported: a wrong name is reported immediately. And
what an environment's process is to serve: which file, for which run, and how long it waits.
"""

from dataclasses import dataclass
from pathlib import Path

from rl_contract.content_hash import sha256_of_texts
from tinker_atropos.config.run_config import RunConfig, nearest
from tinker_atropos.environments.adapters.families import FAMILIES, Family, family_of
from tinker_atropos.environments.discovery import BUNDLED_FOLDER, discover_bundled
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The longest waits, in seconds."""

    trainer: float = 600.0
    first_group: float = 1800.0
    next_item: float = 300.0


@dataclass(frozen=True, slots=True)
class LocatedEnvironment:
    """The file of an environment. A bundled one is also known by its module and class; one of another library by the
    module of its adapter and its name there.
    """

    file: Path
    module: str | None = None
    class_name: str | None = None
    name_in_library: str | None = None

    @property
    def bundled(self) -> bool:
        return self.module is not None


def locate_environment(name_or_path: str) -> LocatedEnvironment:
    """An environment by name, or a Python file by path. Raises ConfigError if there is none."""
    if family := family_of(name_or_path):
        return _of_library(family, name_or_path)
    if name_or_path.endswith(".py") or "/" in name_or_path:
        file = Path(name_or_path).resolve()
        if not file.is_file():
            raise ConfigError(f"there is no environment file {file}")
        return LocatedEnvironment(file)
    environments = {found.name: found for found in discover_bundled().environments}
    if name_or_path not in environments:
        available = ", ".join([*environments, *(f"{family}/NAME" for family in FAMILIES)])
        raise ConfigError(
            f"there is no environment {name_or_path!r}{nearest(name_or_path, environments)} (available: {available}; "
            f"the path of a Python file works too)"
        )
    found = environments[name_or_path]
    module = ".".join(["tinker_atropos", *Path(found.file_path).with_suffix("").parts])
    return LocatedEnvironment(BUNDLED_FOLDER.parent / found.file_path, module, found.class_name)


def sha256_of_files(folder: Path) -> str:
    """Of the files of an own environment, as they are mounted: without what the kubelet and Python put beside them."""
    files = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    return sha256_of_texts({file.name: file.read_bytes().decode(errors="replace") for file in files})


def _of_library(family: Family, environment: str) -> LocatedEnvironment:
    known = {each.name for each in family.discover().environments}
    if not known:
        raise ConfigError(f"{environment!r} cannot be served: its library is not installed here")
    if family.listed_name(environment) not in known:
        raise ConfigError(f"there is no environment {environment!r}{nearest(environment, known)}")
    file = BUNDLED_FOLDER.joinpath(*family.module.split(".")[2:]).with_suffix(".py")
    return LocatedEnvironment(file, family.module, name_in_library=environment.partition("/")[2])


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which environment, for which run."""

    settings: Settings
    run: RunConfig
    located: LocatedEnvironment
    deadlines: Deadlines
