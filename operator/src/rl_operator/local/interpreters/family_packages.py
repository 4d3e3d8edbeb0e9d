"""Libraries of environments that get an interpreter of their own, and what a user adds to one."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rl_operator.api.separate_interpreters import FAMILIES, not_installed, outdated
from rl_operator.errors import RefusedError
from rl_operator.local.interpreters.installed import Installed, project_hash
from rl_operator.local.interpreters.interpreter import Marker, Recipe

EXTRAS: Final[Mapping[str, str]] = {family: family for family in FAMILIES}
"""From a library to the extra of tinker-atropos that installs it."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]*[A-Za-z0-9])?")


def require_family(name: str) -> str:
    """Raises RefusedError naming those that there are."""
    if name not in EXTRAS:
        known = ", ".join(sorted(EXTRAS))
        raise RefusedError(f"there is no library {name!r} with an interpreter of its own (there is: {known})")
    return name


def family_recipe(family: str, installed: Installed, before: Marker | None, asked: Sequence[str]) -> Recipe:
    """With what was installed before, and what is asked for now. Raises RefusedError."""
    packages = {**(before.packages if before else {}), **dict(map(_package, asked))}
    parts = [installed.stamp, family, packages, [project_hash(Path(path)) for path in packages if path[0] == "/"]]
    stamp = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    base = installed.arguments(EXTRAS[family])
    return Recipe(base, installed.told, installed.stamp, packages, stamp)


def family_absence(family: str, installed: Installed | None, marker: Marker | None) -> str | None:
    """Why its environments cannot be named; None: they can. `installed` None: nothing can be said about that."""
    if marker is None:
        return not_installed(family)
    if installed is not None and marker.base_stamp != installed.stamp:
        return outdated(family, marker.tinker_atropos, installed.told)
    return None


def _package(asked: str) -> tuple[str, tuple[str, ...]]:
    """Its name and how it is installed. A folder is used where it is, so that edits take effect."""
    text = asked.strip()
    path = Path(text).expanduser()
    if text.startswith(("/", ".", "~")) or ("/" in text and "@" not in text):
        if not path.exists():
            raise RefusedError(f"there is no folder or file {text}: give a package's folder, or its name on an index")
        place = str(path.resolve())
        return place, (("--editable", place) if path.is_dir() else (place,))
    name = _NAME.match(text)
    if name is None:
        raise RefusedError(f"{asked!r} is neither a package's name nor a folder: give NAME, NAME==VERSION or ./FOLDER")
    return re.sub(r"[-._]+", "-", name[0]).lower(), (text,)
