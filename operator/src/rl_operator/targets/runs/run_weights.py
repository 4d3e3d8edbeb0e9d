"""The trained weights of a run: where they are, and what it takes to call `tinker-atropos` with them.

We do not import the Tinker SDK: `tinker-atropos` runs as a process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_contract.env_vars import TINKER_API_KEY, TINKER_BASE_URL
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_contract.trainer_messages import BestCheckpoint
    from rl_operator.api.runtime import Runtime
    from rl_operator.api.training_run import TrainingRun

BACKEND_AWAY: Final = 4
"""tinker-atropos' exit code for a backend that does not respond."""


@dataclass(frozen=True)
class KnownWeights:
    """`step`: of the checkpoint that they are, unless they are the final weights."""

    path: str
    step: int | None = None


def weights_of(run: "TrainingRun", final: str | None) -> KnownWeights | None:
    """The `final` path if the run has it, else its newest checkpoint; None if it has neither."""
    if final is not None:
        return KnownWeights(final)
    checkpoint = run.status.checkpoint
    return KnownWeights(checkpoint.state_path, checkpoint.step) if checkpoint else None


def best_of(run: "TrainingRun", target: Target) -> "BestCheckpoint":
    """The run's best weights. Raises RefusedError if there are none, and says why."""
    name, best = run.metadata.name, run.status.best
    if best is None:
        raise RefusedError(
            f"run {name} in {target.label} has no best weights: only weights that were saved for an evaluation can be, "
            f"and none of them has a result yet (with steps_per_eval 0 none ever has), or the backend has lost them; "
            f"leave --best out for the last ones"
        )
    return best


def tokenizer_of(run: "TrainingRun", target: Target) -> tuple[str, ...]:
    """The option that names the run's tokenizer; empty if the runtime or environment no longer exists."""
    from rl_operator.api.sections import effective_sections
    from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of

    inputs = inputs_of(run, FileInputs(target))
    if inputs is None or inputs.environment.known is None:
        return ()
    name = effective_sections(run, inputs.runtime, inputs.environment.known).env.get("tokenizer_name")
    return ("--tokenizer", str(name)) if name else ()


def backend_env_vars(run: "TrainingRun", target: Target, caller: Mapping[str, str]) -> Mapping[str, str]:
    """Where the weights are: the service that this target runs, else what the `caller`'s variables say, else the
    runtime's URL. Raises RefusedError without a key.
    """
    if (own := target.tinker_env_vars(run.spec.runtime)) is not None:
        return own
    runtime = target.runtimes().get(run.spec.runtime)
    if not caller.get(TINKER_API_KEY):
        raise RefusedError(_missing_key(run, runtime, target))
    url = caller.get(TINKER_BASE_URL) or (runtime.spec.backend.url if runtime else None)
    return {TINKER_BASE_URL: url} if url else {}


def _missing_key(run: "TrainingRun", runtime: "Runtime | None", target: Target) -> str:
    secret = runtime.spec.backend.key_secret if runtime else None
    where = f"; on the cluster it is in the Secret {secret.name!r}, key {secret.key!r}" if secret else ""
    return (
        f"TINKER_API_KEY is not set, and the weights of {run.metadata.name} ({target.label}) are at the backend of "
        f"runtime {run.spec.runtime!r}: export it{where}"
    )
