"""The frames of OpenEnv's WebSocket, as its release 0.10.0 reads and writes them: JSON texts, one answer per request.

    -> {"type": "reset", "data": {"seed": 3}}
    -> {"type": "step", "data": {"number": 5}}
    <- {"type": "observation", "data": {"observation": {…}, "reward": 0.5, "done": false}}
    <- {"type": "error", "data": {"message": "…", "code": "VALIDATION_ERROR", "errors": […]}}
    -> {"type": "close"}

Source: `openenv/core/env_server/types.py` and the route `/ws` of `http_server.py`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.validation_errors import MAX_FIELDS, in_one_line

MAX_SAID: Final = 200
"""Characters kept of what a server says about an error."""

Action = dict[str, Any]
Reward = bool | Annotated[float, Field(allow_inf_nan=False)] | None


class OpenEnvServerError(Exception):
    """The environment behind the server failed: its code raised, or the server could not make it."""


class RefusedActionError(Exception):
    """An action that does not exist. The message is for the policy: what is wrong, and what is allowed."""


class CapacityReachedError(Exception):
    """The server has as many sessions as it may have."""


class Observed(BaseModel, strict=True, frozen=True):
    """What a reset or a step led to."""

    observation: dict[str, Any]
    reward: Reward = None
    done: bool = False

    @property
    def earned(self) -> float:
        """The reward; none is 0."""
        return float(self.reward or 0.0)


class _Failure(BaseModel, strict=True):
    message: str = ""
    code: str
    errors: list[Any] = []


class _ObservationFrame(BaseModel, strict=True):
    type: Literal["observation"]
    data: Observed


class _ErrorFrame(BaseModel, strict=True):
    type: Literal["error"]
    data: _Failure


_ANSWER: Final[TypeAdapter[_ObservationFrame | _ErrorFrame]] = TypeAdapter(
    Annotated[_ObservationFrame | _ErrorFrame, Field(discriminator="type")]
)

CLOSE_FRAME: Final = '{"type":"close"}'
LIST_TOOLS: Final[Action] = {"type": "list_tools"}
"""An action of environments whose actions are tool calls (`mcp_types.py`); it may come before a reset."""


def reset_frame(seed: int) -> str:
    return _frame("reset", {"seed": seed})


def step_frame(action: Action) -> str:
    return _frame("step", action)


def _frame(kind: str, content: Mapping[str, Any]) -> str:
    return to_json({"type": kind, "data": content}).decode()


def read_answer(frame: str | bytes) -> Observed:
    """What the server observed.

    Raises RefusedActionError for an action that it does not accept, CapacityReachedError, OpenEnvServerError for its
    other errors, and TransportError for a frame that is none of these.
    """
    try:
        answer = _ANSWER.validate_json(frame)
    except ValidationError as error:
        raise TransportError(f"the server sent a frame that is not an answer: {_where(error)}") from None
    if isinstance(answer, _ObservationFrame):
        return answer.data
    raise _error(answer.data)


def _error(failure: _Failure) -> Exception:
    said = failure.message.strip()[:MAX_SAID]
    match failure.code:
        case "VALIDATION_ERROR":
            return RefusedActionError(f"{_faults(failure.errors) or said}.")
        case "CAPACITY_REACHED":
            return CapacityReachedError(f"the server has no free session: {said}")
        case code:
            return OpenEnvServerError(f"the server answered {code[:MAX_SAID]}: {said}")


def _faults(errors: list[Any]) -> str:
    """`number: Input should be a valid integer; …`, from pydantic's errors as the server sends them."""
    found = [each for each in errors if isinstance(each, dict)][:MAX_FIELDS]
    return "; ".join(f"{_place(each.get('loc'))}: {str(each.get('msg'))[:MAX_SAID]}" for each in found)


def _place(loc: Any) -> str:
    return ".".join(map(str, loc))[:MAX_SAID] if isinstance(loc, list) and loc else "the action"


def _where(error: ValidationError) -> str:
    return in_one_line(error).partition(": ")[2][:MAX_SAID]
