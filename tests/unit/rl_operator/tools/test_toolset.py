"""Whatever a caller sends and whatever happens, there is one answer of one shape."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ConflictError, GoneError, InvalidError, TargetUnreachableError
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, NoSuchRunError, ToolRefusedError
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import TOOLS, Outcome, dispatch


class Several(Arguments):
    limit: int = Field(default=1, ge=1)
    names: tuple[str, ...] | None = None
    values: dict[str, Any] | None = None
    value: Any = None


def answered(context: CallContext, act: Callable[[], Answer], **arguments: Any) -> Outcome:
    tool = AgentTool("rl_act", "Act", "Acts.", Several, lambda _, __: act(), "reads")
    return dispatch(tool, context, arguments)


def raising(error: Exception) -> Callable[[], Answer]:
    def act() -> Answer:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (NoSuchRunError("no run"), "not_found", False),
        (GoneError("deleted"), "not_found", False),
        (ConflictError("somebody wrote"), "conflict", True),
        (TargetUnreachableError("away"), "unreachable", True),
        (InvalidError("no"), "refused", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_becomes_an_answer(context: CallContext, error: Exception, code: str, retryable: bool) -> None:
    outcome = answered(context, raising(error))
    assert outcome.answer == {"error": str(error), "code": code, "retryable": retryable}
    assert outcome.code == code


def test_an_error_carries_additional_help(context: CallContext) -> None:
    outcome = answered(context, raising(ToolRefusedError("no such thing", available=["a"], retryable=True)))
    assert outcome.answer == {"error": "no such thing", "code": "refused", "retryable": True, "available": ["a"]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"limit": "many"}, 'limit is "many": it must be an integer'),
        ({"limit": 0}, "limit is 0: it must be at least 1"),
        ({"names": "a"}, 'names is "a": it must be a list'),
        ({"values": "a"}, 'values is "a": it must be a mapping'),
        ({"limt": 1}, "rl_act has no parameter limt; did you mean 'limit'?; it takes limit, names, value, values"),
    ],
    ids=str,
)
def test_a_wrong_parameter_is_named(context: CallContext, arguments: dict[str, Any], sentence: str) -> None:
    outcome = answered(context, dict, **arguments)
    assert outcome.code == "refused"
    assert outcome.answer["error"].startswith(sentence)
    assert outcome.answer["parameters"] == ["limit", "names", "value", "values"]


def taken(context: CallContext, given: dict[str, Any]) -> dict[str, Any]:
    """What the tool receives."""
    received = []
    tool = AgentTool("rl_act", "Act", "Acts.", Several, lambda _, arguments: received.append(arguments) or {}, "reads")
    assert dispatch(tool, context, given).code is None
    return received[0].model_dump(exclude_unset=True)


def test_json_text_is_taken_for_a_list_or_a_mapping(context: CallContext) -> None:
    given = {"names": '["a", "b"]', "values": ' {"lr": 1}', "value": '["a"]', "limit": "3"}
    assert taken(context, given) == {"names": ("a", "b"), "values": {"lr": 1}, "value": '["a"]', "limit": 3}


def test_null_is_a_value_where_any_value_is_taken(context: CallContext) -> None:
    assert taken(context, dict.fromkeys(Several.model_fields)) == {"value": None}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_null_means_left_out(tool: AgentTool) -> None:
    """OpenAI's strict mode sends every parameter."""
    needed = {name: "x" for name, field in tool.arguments.model_fields.items() if field.is_required()}
    given = tool.arguments.model_validate(dict.fromkeys(tool.arguments.model_fields) | needed)
    assert given == tool.arguments.model_validate(needed)


def test_an_invalid_stored_object_is_not_the_callers_fault(context: CallContext) -> None:
    """It is not an invalid parameter."""
    outcome = answered(context, lambda: {"run": TrainingRun.model_validate({"spec": 1})})
    assert outcome.code == "internal"
    assert "parameters" not in outcome.answer


def test_parameters_may_be_nested_at_any_depth(context: CallContext) -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert answered(context, dict, limit=deep).code in ("refused", "internal")
