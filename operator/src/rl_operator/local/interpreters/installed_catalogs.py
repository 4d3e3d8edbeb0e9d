"""The environments that an interpreter lists: read once, and again when something in it has changed."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from rl_operator.api.catalog import AbsentFamily, Catalog, CatalogEnvironment, EnvironmentFamily
from rl_operator.api.model import ObservedModel
from rl_operator.local.interpreters.interpreter import Interpreter, Marker, stamp_of
from rl_operator.local.interpreters.interpreters import LIBRARY, NOT_INSTALLED, Interpreters, within
from rl_operator.operator_errors import OperatorError

READ_SECONDS: Final = 120.0


class _Kept(ObservedModel):
    """What was read, and of what."""

    stamp: str
    catalog: Catalog


_SOURCES: Final = (".py", ".toml")
_NO_SOURCES: Final = ("__pycache__", "node_modules", "build", "dist")


def local_catalog(base: Catalog, interpreters: Interpreters) -> Catalog:
    """A catalog with the library as its interpreter here has it, or with why there is none."""
    interpreter, absence = interpreters.named(LIBRARY), interpreters.absence()
    marker = interpreter.marker
    if absence is None and marker is not None:
        try:
            variables = within(interpreter.build_folder(marker), interpreters.caller)
            return with_library(base, read_catalog(interpreter, marker, variables))
        except OperatorError as error:
            absence = str(error)
    families, environments = _without_library(base)
    absent = AbsentFamily(name=LIBRARY, hint=absence or NOT_INSTALLED)
    return base.with_changes(families=families, environments=environments, absent=(*base.absent, absent))


def read_catalog(interpreter: Interpreter, marker: Marker, env_vars: Mapping[str, str]) -> Catalog:
    """What its `tinker-atropos environments` lists. Raises OperatorError if that fails."""
    file, stamp = interpreter.folder / "catalog.json", _stamp(marker)
    kept = _kept(file, stamp)
    if kept is not None:
        return kept
    command = [str(interpreter.program(marker)), "environments", "--output", "json"]
    try:
        ended = subprocess.run(command, env=env_vars, capture_output=True, timeout=READ_SECONDS, check=False)  # noqa: S603 -- of the user's own interpreter
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"{command[0]} cannot list its environments: {error}") from error
    if ended.returncode:
        words = ended.stderr.decode(errors="replace").strip().splitlines()
        raise OperatorError(f"{command[0]} cannot list its environments: {words[-1] if words else ended.returncode}")
    try:
        catalog = Catalog.model_validate_json(ended.stdout)
    except ValidationError as error:
        raise OperatorError(
            f"{command[0]} lists its environments in another way: {error.errors()[0]['msg']}"
        ) from error
    _keep(file, stamp, ended.stdout)
    return catalog


def with_library(catalog: Catalog, other: Catalog) -> Catalog:
    """The catalog with the library as another one has it."""
    families, environments = _without_library(catalog)
    return catalog.with_changes(
        families=(*families, *(each for each in other.families if each.name == LIBRARY)),
        environments=(*environments, *(each for each in other.environments if each.name.startswith(f"{LIBRARY}/"))),
        warnings=(*catalog.warnings, *(each for each in other.warnings if each not in catalog.warnings)),
    )


def _without_library(catalog: Catalog) -> tuple[tuple[EnvironmentFamily, ...], tuple[CatalogEnvironment, ...]]:
    families = tuple(each for each in catalog.families if each.name != LIBRARY)
    return families, tuple(each for each in catalog.environments if not each.name.startswith(f"{LIBRARY}/"))


def _kept(file: Path, stamp: str) -> Catalog | None:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    kept = _parsed(text)
    return kept.catalog if kept.stamp == stamp else None


@lru_cache(maxsize=8)
def _parsed(text: str) -> _Kept:
    """A supervisor asks every second."""
    return _Kept.model_validate_json(text)


def _keep(file: Path, stamp: str, catalog: bytes) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps({"stamp": stamp, "catalog": json.loads(catalog)}), encoding="utf-8")
        new.replace(file)
    except OSError:  # no room: it is read again next time
        new.unlink(missing_ok=True)


def _stamp(marker: Marker) -> str:
    """The stamp of the build, and of the sources that are used where they are: a user edits them."""
    sources = []
    for folder in (words[1] for words in marker.packages.values() if words[:1] == ("--editable",)):
        for place, below, files in os.walk(folder):
            below[:] = [name for name in below if not name.startswith(".") and name not in _NO_SOURCES]
            found = (Path(place, name) for name in files if name.endswith(_SOURCES))
            sources += [(str(path), path.stat().st_mtime_ns) for path in found]
    return stamp_of([marker.build, sources])
