"""From names that were typed to a runtime and an environment."""

from pathlib import Path

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.loading import nearest
from rl_operator.api.premises import ChosenEnvironment
from rl_operator.api.runtime import Runtime
from rl_operator.backends.backend import BackEnd
from rl_operator.backends.premises import FileFirst, premises_of
from rl_operator.backends.run_file import with_file
from rl_operator.backends.settable import plain_run
from rl_operator.check import runtime_not_found
from rl_operator.errors import RefusedError


def choose_runtime(backend: BackEnd, name: str) -> Runtime:
    """The runtime of that name; without one the back end's usual one, or the only one.

    Raises RefusedError naming those that there are.
    """
    runtimes, wanted = backend.runtimes(), name or backend.usual_runtime
    if not name and len(runtimes) == 1:
        [wanted] = runtimes
    if wanted not in runtimes:
        raise RefusedError(runtime_not_found(plain_run("any", wanted), runtimes).sentence)
    return runtimes[wanted]


def known_environment(backend: BackEnd, name: str, runtime: Runtime, namespace: str) -> CatalogEnvironment:
    """What `spec.environment: NAME` would mean there. Raises RefusedError saying why it means nothing."""
    run = with_file(plain_run(name, runtime.metadata.name, namespace), Path.cwd(), backend)
    premises = premises_of(run, FileFirst(backend))
    assert premises is not None, "the runtime was found"
    if premises.environment.known is None:
        raise RefusedError(_why_not(name, premises.environment, backend))
    return premises.environment.known


def _why_not(name: str, chosen: ChosenEnvironment, backend: BackEnd) -> str:
    if chosen.pending is not None:
        return chosen.pending[1]
    stalled = chosen.own.status.condition("Stalled") if chosen.own else None
    if stalled is not None:
        return f"environment {name}: {stalled.message}"
    if name.endswith(".py"):
        return f"{backend.label} trains no files: {name} becomes an RLEnvironment with rlctl init --from {name}"
    known = ", ".join(chosen.available) or "none"
    return f"there is no environment {name!r} in {backend.label}{nearest(name, chosen.available)} (available: {known})"
