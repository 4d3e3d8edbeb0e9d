"""The API server's error responses as this package's errors, translated once."""

from collections.abc import Mapping
from typing import Any

from rl_operator.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    TargetUnreachableError,
)


class ExpiredError(OperatorError):
    """The resourceVersion or continue token is too old (410): list again."""


_BY_CODE: Mapping[int, type[OperatorError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: GoneError,
    405: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    415: InvalidError,
    416: GoneError,
    422: InvalidError,
}


def failure(what: str, status: Mapping[str, Any]) -> OperatorError:
    """The error for a Kubernetes `Status` object; `what` names the call, e.g. `POST /api/v1/…/pods`.

    Codes that are not listed (429, 5xx) mean that a later retry may help.
    """
    code = int(status.get("code") or 0)
    kind = _BY_CODE.get(code, TargetUnreachableError)
    reason = status.get("message") or status.get("reason") or "no reason given"
    hint = ": it does not know the token or certificate, or no longer does" if code == 401 else ""
    return kind(f"{what}: the API server answered {code}: {reason}{hint}")


def pause_asked(code: int, headers: Mapping[str, str]) -> float | None:
    """Seconds until the API server wants the next try (429 and 5xx with `Retry-After`); None: it names none.

    It never sends the date that HTTP also allows; gateways in between may, and are treated as if they sent nothing.
    """
    asked = headers.get("Retry-After", "")
    return float(asked) if (code == 429 or code >= 500) and asked.isdecimal() else None
