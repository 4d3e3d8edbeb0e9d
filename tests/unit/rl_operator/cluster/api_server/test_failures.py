import pytest

from rl_operator.cluster.api_server.failures import ExpiredError, failure
from rl_operator.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    TargetUnreachableError,
)

BY_CODE = [
    (400, InvalidError),
    (403, ForbiddenError),
    (404, GoneError),
    (409, ConflictError),
    (410, ExpiredError),
    (416, GoneError),
    (422, InvalidError),
    (429, TargetUnreachableError),
    (500, TargetUnreachableError),
    (503, TargetUnreachableError),
]


@pytest.mark.parametrize(("code", "kind"), BY_CODE)
def test_the_type_says_who_must_act(code: int, kind: type[OperatorError]) -> None:
    error = failure("POST /api/v1/pods", {"code": code, "message": "the reason"})
    assert type(error) is kind
    assert str(error) == f"POST /api/v1/pods: the API server answered {code}: the reason"


def test_credentials_that_are_refused_are_said_to_be_so() -> None:
    error = failure("GET /api", {"code": 401, "message": "Unauthorized"})
    assert type(error) is ForbiddenError
    assert str(error).endswith("401: Unauthorized: it does not know the token or certificate, or no longer does")
