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
    (401, ForbiddenError),
    (403, ForbiddenError),
    (404, GoneError),
    (409, ConflictError),
    (410, ExpiredError),
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
