"""Errors of the tinker SDK in this package's vocabulary: who must act."""

import tinker
from tinker.types import RequestErrorCategory

from tinker_atropos.errors import BackendError, BillingError, ConfigError, CredentialsError, RunError

_REFUSED = (400, 404, 422)


def translate(error: BaseException, doing: str, deadline_seconds: float, *, opening: bool = False) -> RunError:
    """The RunError that an SDK error means.

    While a run is opened, a refusal is about its configuration; later the same answer (a model that is no longer
    known, say) means that the backend lost its state, which a new attempt can mend.
    """
    cause = _root(error)
    status = cause.status_code if isinstance(cause, tinker.APIStatusError) else None
    if isinstance(cause, TimeoutError):
        return BackendError(f"{doing}: no answer within tinker.backend_deadline_seconds ({deadline_seconds:g} s)")
    if status in (401, 403) or type(cause) is tinker.TinkerError:
        return CredentialsError(f"{doing}: the backend does not accept TINKER_API_KEY: {_sentence(cause)}")
    if status == 402:
        return BillingError(f"{doing}: the backend wants payment: {_sentence(cause)}")
    if opening and refused(cause):
        return ConfigError(f"{doing}: the backend refused: {_sentence(cause)}")
    return BackendError(f"{doing}: {_sentence(cause)}")


def refused(error: BaseException) -> bool:
    """Whether the backend found the request itself wrong."""
    if isinstance(error, tinker.RequestFailedError):
        return error.category is RequestErrorCategory.User
    return isinstance(error, tinker.APIStatusError) and error.status_code in _REFUSED


def _root(error: BaseException) -> BaseException:
    """The failed request behind a poisoned client's RuntimeError."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _sentence(error: BaseException) -> str:
    """The backend's own words, without the SDK's wrapping."""
    if isinstance(error, tinker.APIStatusError) and isinstance(error.body, dict):
        return f"{error.body.get('detail', error.message)} (HTTP {error.status_code})"
    if isinstance(error, tinker.RequestFailedError):
        return error.message.removeprefix("Request failed: ").split(" for self.request_id=")[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
