from typing import Any

import httpx
import pytest
import tinker
from pydantic import ValidationError
from tinker.types import OptimStepResponse, RequestErrorCategory

from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    ConfigError,
    CredentialsError,
    DivergedError,
)
from tinker_atropos.trainer.backend.sdk_calls import gone, refused, translate


def status_error(status: int, body: object = None) -> tinker.APIStatusError:
    response = httpx.Response(status, request=httpx.Request("POST", "http://backend/api/v1/x"))
    return tinker.APIStatusError(f"Error code: {status}", response=response, body=body or {"detail": "no such model"})


def failed(category: RequestErrorCategory) -> tinker.RequestFailedError:
    return tinker.RequestFailedError("Request failed: out of range for self.request_id='1'", "1", category)


def unread(content: dict[str, Any]) -> ValueError:
    """The SDK's error about an answer to optim_step that it cannot read."""
    with pytest.raises(ValidationError) as caught:
        OptimStepResponse.model_validate(content)
    wrapped = ValueError(f"Error retrieving result: {caught.value} for self.request_id='1' and expected type X")
    wrapped.__cause__ = caught.value
    return wrapped


UNEXPECTED = (
    "the backend's answer is not what the SDK expects: OptimStepResponse: metrics: Input should be a valid dictionary"
)
USER, SERVER = RequestErrorCategory.User, RequestErrorCategory.Server


@pytest.mark.parametrize(
    ("error", "opening", "expected"),
    [
        (status_error(401), True, CredentialsError),
        (status_error(403), False, CredentialsError),
        (tinker.TinkerError("The api_key client option must be set"), True, CredentialsError),
        (status_error(402), True, BillingError),
        (status_error(402), False, BillingError),
        (status_error(404), True, ConfigError),
        (status_error(422), True, ConfigError),
        (status_error(404), False, BackendLostError),  # a model that was known: the backend lost its state
        (failed(USER), True, ConfigError),
        (failed(USER), False, BackendLostError),
        (failed(SERVER), True, BackendError),
        (failed(SERVER), False, BackendLostError),
        (status_error(410), True, BackendError),
        (status_error(410), False, BackendLostError),
        (status_error(429), False, BackendLostError),
        (status_error(500), False, BackendLostError),
        (TimeoutError(), True, BackendError),
        (TimeoutError(), False, BackendError),  # it may still be at work: opening again would not be faster
        (tinker.APIConnectionError(request=httpx.Request("GET", "http://backend")), False, BackendLostError),
        (tinker.TinkerError("the poll loop failed"), False, BackendLostError),
        (ValueError("unexpected"), False, BackendLostError),
        (unread({"metrics": {"grad_norm": None}}), False, DivergedError),  # how most servers write NaN into JSON
        (unread({"metrics": {"grad_norm": "big"}}), False, BackendLostError),
        (unread({"metrics": 3}), False, BackendLostError),
    ],
)
def test_who_must_act(error: Exception, opening, expected) -> None:
    assert type(translate(error, "creating a training run", opening=opening)) is expected


@pytest.mark.parametrize(
    "outer",
    [
        RuntimeError("A previous request failed; this TrainingClient is poisoned"),
        ValueError("Error retrieving result: … with status 401"),
    ],
)
def test_sdk_errors_are_judged_by_the_answer_behind_them(outer: Exception) -> None:
    outer.__cause__ = status_error(401)
    assert type(translate(outer, "optim_step")) is CredentialsError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (status_error(404), "creating: the backend refused: no such model (HTTP 404)"),
        (status_error(404, body="<h1>Not found</h1>"), "creating: the backend refused: (HTTP 404)"),
        (failed(USER), "creating: the backend refused: out of range"),
        (TimeoutError(), "creating: no answer"),
        (
            unread({"metrics": 3}),
            f"creating: {UNEXPECTED}",
        ),
        (
            unread({"metrics": {"grad_norm": None, "lr": None}}),
            "creating: the backend answered with numbers that are not finite (metrics.grad_norm, metrics.lr)",
        ),
    ],
)
def test_the_message_has_the_operation_and_the_backends_words(error: Exception, message: str) -> None:
    assert str(translate(error, "creating", opening=True)) == message


@pytest.mark.parametrize(
    ("error", "expected"),
    [(status_error(400), True), (status_error(422), True), (status_error(500), False), (failed(USER), True),
     (failed(SERVER), False), (TimeoutError(), False)],
)  # fmt: skip
def test_errors_caused_by_the_request(error: Exception, expected) -> None:
    assert refused(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"), [(status_error(404), True), (status_error(410), True), (status_error(422), False)]
)
def test_objects_the_backend_does_not_have(error: Exception, expected) -> None:
    assert gone(error) is expected
