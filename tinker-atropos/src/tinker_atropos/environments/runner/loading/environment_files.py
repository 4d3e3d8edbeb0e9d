"""From a name or a path to a file, before anything heavy is imported: a wrong name is reported immediately."""

from dataclasses import dataclass
from pathlib import Path

from tinker_atropos.config import nearest
from tinker_atropos.environments.discovery import BUNDLED_FOLDER, discover_bundled
from tinker_atropos.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LocatedEnvironment:
    """The file of an environment. A bundled one is also known by its module and class."""

    file: Path
    module: str | None = None
    class_name: str | None = None

    @property
    def bundled(self) -> bool:
        return self.module is not None


def locate_environment(name_or_path: str) -> LocatedEnvironment:
    """A bundled environment by name, or a Python file by path. Raises ConfigError if there is none."""
    if name_or_path.endswith(".py") or "/" in name_or_path:
        file = Path(name_or_path).resolve()
        if not file.is_file():
            raise ConfigError(f"there is no environment file {file}")
        return LocatedEnvironment(file)
    environments = {found.name: found for found in discover_bundled().environments}
    if name_or_path not in environments:
        raise ConfigError(
            f"there is no environment {name_or_path!r}{nearest(name_or_path, environments)} "
            f"(available: {', '.join(environments)}; the path of a Python file works too)"
        )
    found = environments[name_or_path]
    module = ".".join(["tinker_atropos", *Path(found.file_path).with_suffix("").parts])
    return LocatedEnvironment(BUNDLED_FOLDER.parent / found.file_path, module, found.class_name)
