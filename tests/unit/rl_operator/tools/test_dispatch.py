"""Whatever a caller sends and whatever happens, there is one answer of one shape."""

from collections.abc import Callable
from typing import Any

import pytest

from rl_operator.api.run import TrainingRun
from rl_operator.errors import ConflictError, GoneError, InvalidError, TargetUnreachableError
from rl_operator.tools.tool import Answer, Arguments, NotFoundError, Tool, ToolRefusedError
from rl_operator.tools.tool_context import ToolContext
from rl_operator.tools.toolset import Outcome, dispatch


class Number(Arguments):
    limit: int = 1


def answered(context: ToolContext, act: Callable[[], Answer], **arguments: Any) -> Outcome:
    tool = Tool("rl_act", "Act", "Acts.", Number, lambda _, __: act(), "reads")
    return dispatch(tool, context, arguments)


def raising(error: Exception) -> Callable[[], Answer]:
    def act() -> Answer:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (NotFoundError("no run"), "not_found", False),
        (GoneError("deleted"), "not_found", False),
        (ConflictError("somebody wrote"), "conflict", True),
        (TargetUnreachableError("away"), "unreachable", True),
        (InvalidError("no"), "refused", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_becomes_an_answer(context: ToolContext, error: Exception, code: str, retryable: bool) -> None:
    outcome = answered(context, raising(error))
    assert outcome.answer == {"error": str(error), "code": code, "retryable": retryable}
    assert outcome.code == code


def test_an_error_carries_additional_help(context: ToolContext) -> None:
    outcome = answered(context, raising(ToolRefusedError("no such thing", available=["a"], retryable=True)))
    assert outcome.answer == {"error": "no such thing", "code": "refused", "retryable": True, "available": ["a"]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"limit": "many"}, "limit is 'many': Input should be a valid integer"),
        ({"limt": 1}, "rl_act has no parameter limt; did you mean 'limit'?; it takes limit"),
    ],
    ids=["value", "name"],
)
def test_a_wrong_parameter_is_named(context: ToolContext, arguments: dict[str, Any], sentence: str) -> None:
    outcome = answered(context, dict, **arguments)
    assert outcome.code == "refused"
    assert outcome.answer["error"].startswith(sentence)
    assert outcome.answer["parameters"] == ["limit"]


def test_an_invalid_stored_object_is_not_the_callers_fault(context: ToolContext) -> None:
    """It is not an invalid parameter."""
    outcome = answered(context, lambda: {"run": TrainingRun.model_validate({"spec": 1})})
    assert outcome.code == "internal"
    assert "parameters" not in outcome.answer


def test_parameters_may_be_nested_at_any_depth(context: ToolContext) -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert answered(context, dict, limit=deep).code in ("refused", "internal")
