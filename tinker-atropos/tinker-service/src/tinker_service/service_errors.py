"""Why a request is refused, and why the service does not start. Each says to a person what is wrong and what to do."""

from typing import ClassVar, Final, Literal

from rl_contract.processes import ExitCode

CANCELLED: Final = "the request was cancelled"


class RequestError(Exception):
    """A request that cannot be served; `status` is its HTTP status, `category` the SDK's. Retrying cannot help."""

    category: ClassVar[Literal["user", "server"]] = "user"

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class MissingError(RequestError):
    """An unknown model, sampler, path or base model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class DroppedError(RequestError):
    """Nobody waited any more. The request itself may be right: a newer session of its client can send it again."""

    category = "server"

    def __init__(self) -> None:
        super().__init__("the request was dropped: its session was finished, or had been silent for 30 s", status=503)


class StartError(Exception):
    """The service cannot start. The message is one sentence for a person: what is wrong and what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.BAD_CONFIG


class PortError(StartError):
    """It cannot listen where it is to."""

    exit_code = ExitCode.FAILURE
