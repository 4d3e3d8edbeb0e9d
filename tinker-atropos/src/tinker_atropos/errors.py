"""How a process ends: one vocabulary of errors, named by who must act, and the exit code of each."""

from typing import ClassVar

from pydantic import ValidationError

from rl_contract.processes import ErrorClass, ExitCode


class RunError(Exception):
    """The run cannot continue. The message is one sentence for a person: what is wrong and what to do."""

    error_class: ClassVar[ErrorClass] = "internal"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE


class ConfigError(RunError):
    """The configuration is wrong: retrying cannot help."""

    error_class = "config"
    exit_code = ExitCode.BAD_CONFIG


class CredentialsError(RunError):
    """The backend refused the key."""

    error_class = "credentials"
    exit_code = ExitCode.CREDENTIALS


class BillingError(RunError):
    """The backend requires payment."""

    error_class = "billing"
    exit_code = ExitCode.CREDENTIALS


class BackendError(RunError):
    """The backend did not answer within its deadline."""

    error_class = "backend"
    exit_code = ExitCode.BACKEND_UNREACHABLE


class BackendLostError(BackendError):
    """The session with the backend is no longer usable; training can be reopened from its last checkpoint.

    `training_run_id` names the session's training run, once there is one.
    """

    training_run_id: str | None = None


class WithdrawnError(BackendError):
    """The run is being stopped, and the backend has not accepted this request."""


class CheckpointLostError(RunError):
    """The backend no longer has the checkpoint that the run is to continue from, nor a newer one."""

    error_class = "checkpoint"


class DivergedError(RunError):
    """Training has diverged, or the policy has collapsed: from these weights nothing more is learned."""

    error_class = "diverged"


class BudgetReachedError(RunError):
    """Another step would cost more than the run may: its weights are saved, and a higher budget continues it."""

    error_class = "budget"


class EnvironmentLostError(RunError):
    """The environment failed or exited early."""

    error_class = "environment"


class SilenceError(RunError):
    """A process of the run said nothing for too long, although it may live: no code of the run is at fault."""

    error_class = "silence"


class InternalError(RunError):
    """A bug in this package, or an error that has no class of its own."""


def without_key(text: str, key: str) -> str:
    """What a server says that was sent a key: it may repeat it, and its words get into results, status and logs."""
    return text.replace(key, "[redacted]") if key else text


MAX_FIELDS = 3
"""Fields named of those that pydantic rejects."""


def in_one_line(error: ValidationError) -> str:
    """`Config: rate: Input should be a valid number; …`. Values are left out, because one may be a key.

    pydantic's own first line only counts the faults, and its last one advertises a website.
    """
    found = [f"{'.'.join(map(str, each['loc'])) or 'as a whole'}: {each['msg']}" for each in error.errors()]
    more = f"; and {len(found) - MAX_FIELDS} more" if len(found) > MAX_FIELDS else ""
    return f"{error.title}: {'; '.join(found[:MAX_FIELDS])}{more}"


def first_fault(error: ValidationError) -> str:
    """The first field that is wrong, with its path as written in code: `tokens[0][3]: Input should be …`."""
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
    given = "" if first["type"] == "missing" or not path else f" (given: {str(first['input'])[:60]})"
    return f"{path}: {first['msg']}{given}" if path else first["msg"]
