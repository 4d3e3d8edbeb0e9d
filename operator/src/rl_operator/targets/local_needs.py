"""What a run needs of this machine: runtimes, environments, programs, packages, keys and the service of its model. And
what it left here: its rollouts.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_contract.env_vars import RL_INFERENCE_API_KEY, RL_INFERENCE_URL, TINKER_API_KEY
from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import ENVIRONMENT_KIND, REQUIREMENTS_FILE
from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.file_discovery import discover_files
from rl_operator.local.interpreters.installed_catalogs import local_catalog
from rl_operator.local.interpreters.interpreters import INSTALL, Interpreters
from rl_operator.local.model_runtimes import TINY_RUNTIME, local_runtimes, model_of, require_same_model
from rl_operator.local.own_environments import FILE_ANNOTATION, OwnEnvironments, requirements_of
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import GoneError, RefusedError, TargetUnreachableError
from rl_operator.programs import INSTALL_HINT, TINKER_SERVICE, ProgramMissingError, find_program
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing
from rl_operator.targets.target import Missing
from rl_operator.targets.target_loop import run_sync

TRAINER_PROGRAM: Final = "tinker-atropos"


class LocalNeeds:
    """Looked up in the caller's environment variables and in the state folder."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._interpreters = Interpreters(store.layout, os.environ)

    def runtimes(self) -> dict[str, Runtime]:
        return local_runtimes(self._store)

    def catalog(self) -> Catalog:
        return local_catalog(bundled_catalog(), self._interpreters)

    def environments(self, namespace: str) -> list[Environment]:
        own = OwnEnvironments(self._store.get, discover_files)
        names = [each["metadata"]["name"] for each in self._store.list_all(ENVIRONMENT_KIND, namespace)]

        async def read_all() -> list[Environment]:
            found = [await own.named(namespace, name) for name in names]
            return [environment for environment in found if environment is not None]

        return run_sync(read_all())

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        import aiohttp

        from rl_operator.local.service import TinkerService

        async def ensure() -> Mapping[str, str] | None:
            async with aiohttp.ClientSession() as session:
                service = TinkerService.of_runtime(self._store, runtime, os.environ, session)
                return (await service.ensure()).env_vars() if service else None

        return run_sync(ensure())

    def has_key(self, runtime: str, variable: str) -> bool:
        """The service that this machine runs itself is accessed with its own key."""
        return (variable == TINKER_API_KEY and self._serves(runtime)) or bool(os.environ.get(variable))

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:
        """The program of its containers, and the Tinker service's if the model is computed here."""
        uses = {TRAINER_PROGRAM: "the processes of every run are started with it"}
        if self._serves(runtime):
            uses[TINKER_SERVICE] = f"runtime {runtime} computes its model on this machine with it"
        return tuple(
            Missing("program", program, why, INSTALL_HINT, needed=True)
            for program, why in uses.items()
            if not _is_installed(program)
        )

    def missing_packages(self, run: TrainingRun) -> tuple[Missing, ...]:
        text = requirements_of(run, self._store.get)
        if text is None or self._interpreters.of_requirements(text).marker is not None:
            return ()
        environment = run.metadata.annotations.get(FILE_ANNOTATION, run.spec.environment)
        why = "its environment needs them, in an interpreter of their own"
        return (Missing("packages", REQUIREMENTS_FILE, why, f"{INSTALL} {environment}", needed=True),)

    def refuse_what_would_wait(self, manifest: Manifest) -> None:
        """For a run that is to start: its containers would wait for a program, its trainer for the service or its key,
        forever; the caller can provide all of them now. Raises RefusedError.
        """
        runtime = manifest["spec"]["runtime"]
        for missing in self.missing_programs(runtime):
            raise RefusedError(f"{missing.what} {missing.name} is missing: {missing.why}; {missing.how}")
        self._refuse_missing_keys(runtime)
        for missing in self.missing_packages(parse_stored_run(manifest)):
            raise RefusedError(f"the {missing.what} of {missing.name} are missing: {missing.why}; {missing.how}")
        require_same_model(self._store, runtime)

    def _refuse_missing_keys(self, name: str) -> None:
        runtime = local_runtimes(self._store).get(name)
        if runtime is None or self._serves(name):
            return
        if runtime.spec.backend.key_secret and not os.environ.get(TINKER_API_KEY):
            raise RefusedError(
                f"{TINKER_API_KEY} is not set, and the runtime {name!r} needs it: export "
                f"{TINKER_API_KEY}=tml-…, or use the runtime {TINY_RUNTIME!r}, which needs no key"
            )

    def _serves(self, runtime: str) -> bool:
        """Whether this machine computes the model of that runtime."""
        return model_of(self._store, runtime) is not None


def _is_installed(program: str) -> bool:
    try:
        find_program(program, os.environ.get("PATH"))
    except ProgramMissingError:
        return False
    return True


def inference_provider(runtime: Runtime) -> InferenceProvider | None:
    """The runtime's own, or the one that the caller's environment variables name."""
    if runtime.spec.inference is not None or not (url := os.environ.get(RL_INFERENCE_URL)):
        return runtime.spec.inference
    if not url.startswith(("http://", "https://")):
        raise RefusedError(f"{RL_INFERENCE_URL} is {url!r}; it must be a URL like https://openrouter.ai/api/v1")
    has_key = bool(os.environ.get(RL_INFERENCE_API_KEY))
    key = SecretKey(name="inference", key=RL_INFERENCE_API_KEY) if has_key else None
    return InferenceProvider(url=url, key_secret=key)


ENDING: Final = ".jsonl.zst"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RolloutFolder:
    """Implements `rollout_source.RolloutSource`. A missing folder has no files yet."""

    path: Path
    where: str = "the run's folder"

    def listing(self) -> RolloutListing:
        try:
            found = tuple(file for path in sorted(self.path.glob(f"*{ENDING}")) if (file := _regular(path)))
        except OSError as error:
            raise TargetUnreachableError(f"the folder of rollouts {self.path} cannot be read: {error}") from error
        return RolloutListing(found)

    def content(self, name: str, begin: int = 0) -> bytes:
        if not _PLAIN_NAME.fullmatch(name):  # no way out of the folder
            raise GoneError(f"there is no rollout file {name!r} in {self.where}")
        try:
            with (self.path / name).open("rb") as file:
                file.seek(begin)
                return file.read()
        except FileNotFoundError as error:
            raise GoneError(f"there is no rollout file {name!r} in {self.where} any more") from error
        except OSError as error:
            raise TargetUnreachableError(f"the rollout file {self.path / name} cannot be read: {error}") from error


def _regular(path: Path) -> RolloutFile | None:
    """None: what no trainer writes, such as a link or a pipe, and a file that the trainer has just thinned out."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return RolloutFile(path.name, found.st_size) if stat.S_ISREG(found.st_mode) else None
