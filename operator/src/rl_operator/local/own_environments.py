"""Own environments of local mode: a file next to the run's file, or an RLEnvironment of the state folder.

They are not reconciled here. Their code is read, never run, whenever a run that has not started needs it.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import ConfigMapSource, Environment, EnvironmentSource, EnvironmentSpec
from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.model import ObjectMeta
from rl_operator.api.names import ENVIRONMENT_KIND, GROUP, OWN_PREFIX, REQUIREMENTS_FILE
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.openenv_rules import server_faults
from rl_operator.documents.parse import parse_environment
from rl_operator.documents.shipped import openenv_environment
from rl_operator.documents.source_files import source_hash
from rl_operator.local.interpreters.interpreters import fault_of
from rl_operator.status.kind_status import (
    EnvironmentReading,
    Readiness,
    Verdict,
    environment_status,
    files_in,
    look_at_server,
    look_at_source,
)

FILE_ANNOTATION: Final = f"{GROUP}/environment-file"
"""On a run of `environment: ./my_env.py`: the file's absolute path, as rlctl found it next to the run's file."""

Read = Callable[[str, str, str], Manifest | None]
"""An object by kind, namespace and name."""

Files = Mapping[str, str]
Discover = Callable[[Files, str | None], Awaitable[Catalog]]
"""From Python files and the name of the entry file (None: the only one) to what they define."""


class OwnEnvironments:
    """Finds own environments and reads them. Results are cached by the files' content."""

    def __init__(self, read: Read, discover: Discover) -> None:
        self._read = read
        self._discover = discover
        self._found: dict[tuple[str | None, str], Catalog] = {}

    async def of_run(self, run: TrainingRun) -> Environment | None:
        """What `spec.environment` names; None: it is not an own environment, or does not exist."""
        name, namespace = run.spec.environment, run.metadata.namespace
        if name.startswith(OWN_PREFIX):
            return await self.named(namespace, name.removeprefix(OWN_PREFIX))
        if not name.endswith(".py"):
            return None
        path = Path(run.metadata.annotations.get(FILE_ANNOTATION, name))
        return await self.of_file(path, namespace)

    async def of_file(self, path: Path, namespace: str) -> Environment:
        """The environment that an absolute path stands for; its status reports it if there is none."""
        source = EnvironmentSource(config_map=ConfigMapSource(name=path.name, entry=path.name))
        metadata = ObjectMeta(name=path.name, namespace=namespace, annotations={FILE_ANNOTATION: str(path)})
        return await self._looked_at(Environment(metadata=metadata, spec=EnvironmentSpec(source=source)))

    async def named(self, namespace: str, name: str) -> Environment | None:
        manifest = self._read(ENVIRONMENT_KIND, namespace, name)
        return await self._looked_at(parse_environment(manifest)) if manifest else None

    async def files(self, environment: Environment) -> Files | None:
        """What its pods get: all files of its ConfigMap; for a folder, the entry file and those that it imports.

        None if there is nothing to read. May raise OSError.
        """
        if path := _file_of(environment):
            files = _python_files(path.parent)
            catalog = await self._catalog(files, path.name)
            return {name: files[name] for name in catalog.modules} | _requirements_beside(path)
        source = environment.spec.source
        config_map = self._config_map(environment, source.config_map) if source else None
        return dict(config_map.get("data", {})) if config_map else None

    async def _looked_at(self, environment: Environment) -> Environment:
        try:
            look = await self._look(environment)
        except OSError as error:
            look = _stalled("Unreadable", f"{error.filename}: {error.strerror}")
        return environment.with_changes(status=environment_status(environment, look, datetime.now(UTC)))

    async def _look(self, environment: Environment) -> EnvironmentReading:
        source = environment.spec.source
        if environment.spec.openenv:
            faults = tuple(server_faults(environment, local=True))
            return look_at_server(environment, faults, openenv_environment())
        if source is None:
            return _stalled("NeedsCluster", "Local mode runs no images: give the code with spec.source.")
        if path := _file_of(environment):
            return await self._look_at_file(path)
        where, entry = f"ConfigMap {environment.metadata.namespace}/{source.config_map.name}", source.config_map.entry
        files = files_in(where, self._config_map(environment, source.config_map))
        if isinstance(files, EnvironmentReading):
            return files
        if fault := fault_of(files.get(REQUIREMENTS_FILE, "")):
            return _stalled("InvalidRequirements", fault)
        return look_at_source(where, files, entry, await self._catalog(files, entry))

    async def _look_at_file(self, path: Path) -> EnvironmentReading:
        files = _files_beside(path)
        if isinstance(files, EnvironmentReading):
            return files
        catalog = await self._catalog(files, path.name)
        # The hash covers what the pods get: a run waits while it covers anything else.
        given = ({name: files[name] for name in catalog.modules} or dict(files)) | _requirements_beside(path)
        if fault := fault_of(given.get(REQUIREMENTS_FILE, "")):
            return _stalled("InvalidRequirements", fault)
        return look_at_source(str(path.parent), given, path.name, catalog)

    def _config_map(self, environment: Environment, source: ConfigMapSource) -> Manifest | None:
        return self._read("ConfigMap", environment.metadata.namespace, source.name)

    async def _catalog(self, files: Files, entry: str | None) -> Catalog:
        content = entry, source_hash(files)
        if content not in self._found:
            self._found[content] = await self._discover(files, entry)
        return self._found[content]


def requirements_of(run: TrainingRun, read: Read) -> str | None:
    """The requirements.txt beside the own environment of a run; None: there is none. May raise OSError."""
    name, namespace = run.spec.environment, run.metadata.namespace
    if name.endswith(".py"):
        return _requirements_beside(Path(run.metadata.annotations.get(FILE_ANNOTATION, name))).get(REQUIREMENTS_FILE)
    manifest = read(ENVIRONMENT_KIND, namespace, name.removeprefix(OWN_PREFIX)) if name.startswith(OWN_PREFIX) else None
    source = parse_environment(manifest).spec.source if manifest else None
    config_map = read("ConfigMap", namespace, source.config_map.name) if source else None
    text: str | None = (config_map or {}).get("data", {}).get(REQUIREMENTS_FILE)
    return text


def _requirements_beside(path: Path) -> dict[str, str]:
    """By its name; empty if there is none that says anything."""
    file = path.with_name(REQUIREMENTS_FILE)
    text = _text_of(file) if file.is_file() else None
    return {REQUIREMENTS_FILE: text} if text and text.strip() else {}


def _file_of(environment: Environment) -> Path | None:
    path = environment.metadata.annotations.get(FILE_ANNOTATION)
    return Path(path) if path else None


def _files_beside(path: Path) -> Files | EnvironmentReading:
    if not path.is_file():
        return _stalled("SourceNotFound", f"There is no file {path}. A relative path begins where the run's file is.")
    files = _python_files(path.parent)
    return files if path.name in files else _stalled("Unreadable", f"{path} is not UTF-8 text.")


def _python_files(folder: Path) -> Files:
    """The folder's Python files, without its subfolders; anything that no ConfigMap could hold is left out."""
    texts = {path.name: _text_of(path) for path in sorted(folder.glob("[A-Za-z0-9_]*.py")) if path.is_file()}
    return {name: text for name, text in texts.items() if text is not None}


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _stalled(reason: str, message: str) -> EnvironmentReading:
    return EnvironmentReading(Verdict(Readiness.STALLED, reason, message))
