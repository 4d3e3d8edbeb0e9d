"""Asking weights: `tinker-atropos sample` as a process, with a limit of time, and ended with whoever asked."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rl_contract.env_vars import TINKER_API_KEY
from rl_operator.local.programs.launch import passed_on
from rl_operator.operator_errors import RefusedError, TargetUnreachableError, WaitTimeoutError
from rl_operator.programs import ProgramMissingError, find_program
from rl_operator.status.text.sentences import redacted, without_control
from rl_operator.targets.runs.run_weights import BACKEND_AWAY, backend_env_vars
from rl_operator.targets.target import Target

if TYPE_CHECKING:
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
    try:
        program = find_program("tinker-atropos", os.environ.get("PATH"))
    except ProgramMissingError as error:
        raise RefusedError(str(error)) from None
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
    reason = _one_line((errors.strip().splitlines() or ["it ended without a word"])[-1]).removeprefix("error: ")
    raise TargetUnreachableError(reason) if process.returncode == BACKEND_AWAY else RefusedError(reason)


def _one_line(text: str) -> str:
    return " ".join(redacted(without_control(" ".join(text.split()))).split())


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
