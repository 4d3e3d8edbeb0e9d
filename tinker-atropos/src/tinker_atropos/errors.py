"""How a process ends: one vocabulary of errors, named by who must act, and the exit code of each.

The codes are public (they decide whether the operator retries):
0 done or stopped cleanly, 1 anything else, 2 bad configuration, 3 credentials or billing,
4 backend unreachable past its deadline.
"""

from enum import IntEnum
from typing import ClassVar, Literal

ErrorClass = Literal[
    "config", "credentials", "billing", "backend", "checkpoint", "diverged", "environment", "budget", "internal"
]


class ExitCode(IntEnum):
    DONE = 0
    FAILURE = 1
    BAD_CONFIG = 2
    CREDENTIALS = 3
    BACKEND_UNREACHABLE = 4


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


class CheckpointLostError(RunError):
    """The backend no longer has the checkpoint that the run is to continue from, nor a newer one."""

    error_class = "checkpoint"


class DivergedError(RunError):
    """Training has left the numbers, or the policy has collapsed: from these weights nothing more is learned."""

    error_class = "diverged"


class BudgetReachedError(RunError):
    """Another step would cost more than the run may: its weights are saved, and a higher budget continues it."""

    error_class = "budget"


class EnvironmentLostError(RunError):
    """The environment failed, exited early or stopped renewing its lease."""

    error_class = "environment"


class InternalError(RunError):
    """A bug in this package, or an error that has no class of its own."""
