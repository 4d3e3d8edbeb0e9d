"""From names as typed to a runtime and an environment."""

from pathlib import Path

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.run_inputs import ChosenEnvironment
from rl_operator.api.runtime import Runtime
from rl_operator.check import runtime_not_found
from rl_operator.check.name_lists import unknown_environment
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.parameters import plain_run
from rl_operator.targets.inputs.run_file import with_file
from rl_operator.targets.target import Target


def choose_runtime(target: Target, name: str) -> Runtime:
    """The runtime of that name; without one the target's default, or the only one.

    Raises RefusedError naming the existing ones.
    """
    runtimes, wanted = target.runtimes(), name or target.usual_runtime
    if not name and len(runtimes) == 1:
        [wanted] = runtimes
    if wanted not in runtimes:
        raise RefusedError(runtime_not_found(plain_run("any", wanted), runtimes).sentence)
    return runtimes[wanted]


def known_environment(target: Target, name: str, runtime: Runtime, namespace: str) -> CatalogEnvironment:
    """What `spec.environment: NAME` would mean there. Raises RefusedError if it means nothing."""
    run = with_file(plain_run(name, runtime.metadata.name, namespace), Path.cwd(), target)
    inputs = inputs_of(run, FileInputs(target))
    assert inputs is not None, "the runtime was found"
    if inputs.environment.known is None:
        raise RefusedError(_why_not(name, inputs.environment, target))
    return inputs.environment.known


def _why_not(name: str, chosen: ChosenEnvironment, target: Target) -> str:
    if chosen.pending is not None:
        return chosen.pending[1]
    stalled = chosen.own.status.condition("Stalled") if chosen.own else None
    if stalled is not None:
        return f"environment {name}: {stalled.message}"
    if name.endswith(".py"):
        return f"{target.label} trains no files: {name} becomes an RLEnvironment with rlctl init --from {name}"
    if chosen.absence is not None:
        return f"environment {name}: {chosen.absence}"
    return f"there is no environment {name!r} in {target.label}{unknown_environment(name, chosen.available)[0]}"
