"""Errors in a client's request. The message reaches the SDK's user: it says what is wrong and what to do."""

from typing import Final

CANCELLED: Final = "the request was cancelled"
DROPPED: Final = "the request was dropped: its session was finished, or had been silent for 30 s"


class RequestError(Exception):
    """A request that cannot be served; `status` is its HTTP status. Retrying cannot help."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class NotFoundError(RequestError):
    """An unknown model, sampler, path or base model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)
