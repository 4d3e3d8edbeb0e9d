"""What a run needs of this machine before it starts here: programs, packages, keys, and room for its model."""

import os
from collections.abc import Mapping
from typing import Any, Final

from rl_contract.env_vars import RL_INFERENCE_API_KEY, RL_INFERENCE_URL, TINKER_API_KEY
from rl_operator.api.names import REQUIREMENTS_FILE
from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.parse import parse_stored_run
from rl_operator.local.interpreters.interpreters import INSTALL, Interpreters
from rl_operator.local.model_runtimes import TINY_RUNTIME, local_runtimes, model_of, require_same_model
from rl_operator.local.own_environments import FILE_ANNOTATION, requirements_of
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import RefusedError
from rl_operator.programs import INSTALL_COMMAND, INSTALL_HINT, ProgramMissingError, find_program, has_torch
from rl_operator.targets.target import Missing

TRAINER_PROGRAM: Final = "tinker-atropos"


class LocalNeeds:
    """Looked up in the caller's environment variables and in the state folder."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._interpreters = Interpreters(store.layout, os.environ)

    def has_key(self, runtime: str, variable: str) -> bool:
        """The service that this machine runs itself is accessed with its own key."""
        return (variable == TINKER_API_KEY and self._serves(runtime)) or bool(os.environ.get(variable))

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:
        """The program of its containers, and torch if the model is computed here."""
        try:
            program = find_program(TRAINER_PROGRAM, os.environ.get("PATH"))
        except ProgramMissingError:
            why = "the processes of every run are started with it"
            return (Missing("program", TRAINER_PROGRAM, why, INSTALL_HINT, needed=True),)
        if not self._serves(runtime) or has_torch(program):
            return ()
        why = f"runtime {runtime} computes its model on this machine with it"
        return (Missing("package", "torch", why, INSTALL_COMMAND, needed=True),)

    def missing_packages(self, run: TrainingRun) -> tuple[Missing, ...]:
        text = requirements_of(run, self._store.get)
        if text is None or self._interpreters.of_requirements(text).marker is not None:
            return ()
        environment = run.metadata.annotations.get(FILE_ANNOTATION, run.spec.environment)
        why = "its environment needs them, in an interpreter of their own"
        return (Missing("packages", REQUIREMENTS_FILE, why, f"{INSTALL} {environment}", needed=True),)

    def refuse_what_would_wait(self, manifest: Mapping[str, Any]) -> None:
        """For a run that is to start: its containers would wait for a program, its trainer for torch or its key,
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


def inference_provider(runtime: Runtime) -> InferenceProvider | None:
    """The runtime's own, or the one that the caller's environment variables name."""
    if runtime.spec.inference is not None or not (url := os.environ.get(RL_INFERENCE_URL)):
        return runtime.spec.inference
    if not url.startswith(("http://", "https://")):
        raise RefusedError(f"{RL_INFERENCE_URL} is {url!r}; it must be a URL like https://openrouter.ai/api/v1")
    has_key = bool(os.environ.get(RL_INFERENCE_API_KEY))
    key = SecretKey(name="inference", key=RL_INFERENCE_API_KEY) if has_key else None
    return InferenceProvider(url=url, key_secret=key)
