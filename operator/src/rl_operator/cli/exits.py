"""rlctl's exit codes. They are public: scripts branch on them."""

from enum import IntEnum

from rl_operator.operator_errors import ForbiddenError, OperatorError, TargetUnreachableError, WaitTimeoutError


class CommandExit(IntEnum):
    OK = 0
    RUN_FAILED = 1
    DIFFERENT = 1
    REFUSED = 2
    UNREACHABLE = 3
    TIMEOUT = 124
    INTERRUPTED = 130


def exit_code_of(error: OperatorError) -> CommandExit:
    """Every error that is not about the target is about the request."""
    if isinstance(error, TargetUnreachableError | ForbiddenError):
        return CommandExit.UNREACHABLE
    return CommandExit.TIMEOUT if isinstance(error, WaitTimeoutError) else CommandExit.REFUSED
