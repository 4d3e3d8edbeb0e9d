"""The trained weights of a run: where they are, and asking them.

We do not import the Tinker SDK: `tinker-atropos` runs as a process, with a limit of time, and ends with whoever asked.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rl_contract.env_vars import TINKER_API_KEY, TINKER_BASE_URL
from rl_operator.local.programs.launch import passed_on
from rl_operator.operator_errors import ForbiddenError, RefusedError, TargetUnreachableError, WaitTimeoutError
from rl_operator.programs import find_program
from rl_operator.status.text.sentences import redacted, without_control
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_contract.trainer_messages import BestCheckpoint
    from rl_operator.api.runtime import Runtime
    from rl_operator.api.training_run import TrainingRun

LOOK_SECONDS: Final = 0.2
"""How soon a call ends whose caller has left."""

Completion = dict[str, Any]
"""`text`, `tokens`, `logprob` and `stop_reason`."""


def asking_env_vars(run: "TrainingRun", target: Target, caller: Mapping[str, str]) -> dict[str, str]:
    """What the process gets: no more of this server's own than any process, and the `caller`'s key. Raises RefusedError
    without one.
    """
    key = {name: caller[name] for name in (TINKER_API_KEY,) if name in caller}
    return {**passed_on(os.environ), **key, **backend_env_vars(run, target, caller)}


def completions(
    options: Sequence[str], prompt: str, env_vars: Mapping[str, str], seconds: float, given_up: Callable[[], bool]
) -> list[Completion]:
    """Blocks. Raises RefusedError, TargetUnreachableError, and WaitTimeoutError after so many seconds."""
    program = find_program("tinker-atropos", os.environ.get("PATH"))
    with subprocess.Popen(  # noqa: S603 -- our own program
        [program, "sample", *options, "-o", "json", "-"],
        env=env_vars,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            printed, errors = _until_ended(process, prompt, seconds, given_up)
        finally:
            process.kill()
    if not process.returncode:
        found: list[Completion] = json.loads(printed)["completions"]
        return found
    last = (errors.strip().splitlines() or ["it ended without a word"])[-1]
    reason = " ".join(redacted(without_control(" ".join(last.split()))).split()).removeprefix("error: ")
    raise TargetUnreachableError(reason) if process.returncode == BACKEND_AWAY else RefusedError(reason)


def _until_ended(
    process: "subprocess.Popen[bytes]", prompt: str, seconds: float, given_up: Callable[[], bool]
) -> tuple[str, str]:
    deadline = time.monotonic() + seconds
    given: bytes | None = prompt.encode()
    while True:
        try:
            printed, errors = process.communicate(given, timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if given_up() or time.monotonic() > deadline:
                raise WaitTimeoutError("the weights have not answered in time: ask for fewer tokens") from None
            given = None  # it is sent: what is left of it, too
        else:
            return printed.decode(errors="replace"), errors.decode(errors="replace")


BACKEND_AWAY: Final = 4
"""tinker-atropos' exit code for a backend that does not respond."""


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
    """The option that names the run's tokenizer; empty if the runtime or environment no longer exists, or may not be
    read.
    """
    from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of

    try:
        inputs = inputs_of(run, FileInputs(target))
    except ForbiddenError:
        return ()
    if inputs is None or inputs.environment.known is None:
        return ()
    name = inputs.sections(run).env.get("tokenizer_name")
    return ("--tokenizer", str(name)) if name else ()


def backend_env_vars(run: "TrainingRun", target: Target, caller: Mapping[str, str]) -> Mapping[str, str]:
    """Where the weights are: the service that this target runs, else what the `caller`'s variables say, else the
    runtime's URL. Raises RefusedError without a key.
    """
    if (own := target.tinker_env_vars(run.spec.runtime)) is not None:
        return own
    try:
        runtime = target.runtimes().get(run.spec.runtime)
    except ForbiddenError:
        if not caller.get(TINKER_BASE_URL):
            raise
        runtime = None
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
