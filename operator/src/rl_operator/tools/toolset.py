"""All tools, in the order in which an agent needs them, and one call of a tool, from any interface.

Arguments are checked, and errors become an answer that says what to do.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from pydantic import ValidationError

from rl_operator.api.hints import MUST_BE
from rl_operator.api.refusal import redacted
from rl_operator.api.value_text import text_of
from rl_operator.documents.fault_words import allowed_instead
from rl_operator.documents.parse import DocumentError, nearest
from rl_operator.operator_errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    GoneError,
    OperatorError,
    TargetUnreachableError,
    UnauthenticatedError,
    WaitTimeoutError,
)
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, NoSuchRunError, ToolRefusedError
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls import (
    rl_edit_config,
    rl_get_logs,
    rl_get_results,
    rl_get_rollouts,
    rl_list_environments,
    rl_list_runs,
    rl_start_training,
    rl_test_inference,
)
from rl_operator.tools.drafts.draft_refusals import refused

log = logging.getLogger(__name__)

ErrorCode = Literal[
    "refused",
    "not_found",
    "conflict",
    "forbidden",
    "unauthenticated",
    "too_large",
    "busy",
    "unreachable",
    "timeout",
    "internal",
]

_CODES: Final[Mapping[type[OperatorError], ErrorCode]] = {
    GoneError: "not_found",
    NoSuchRunError: "not_found",
    ConflictError: "conflict",
    ForbiddenError: "forbidden",
    UnauthenticatedError: "unauthenticated",
    BusyError: "busy",
    TargetUnreachableError: "unreachable",
    WaitTimeoutError: "timeout",
}
"""All others are refusals: about the request."""

RETRYABLE: Final[frozenset[ErrorCode]] = frozenset({"conflict", "busy", "unreachable", "timeout"})


@dataclass(frozen=True)
class Outcome:
    """An answer. `code` is None if the tool succeeded; else the answer holds `error` and helpful details."""

    answer: Answer
    code: ErrorCode | None = None


def dispatch(tool: AgentTool, context: CallContext, arguments: Mapping[str, object]) -> Outcome:
    """Never raises for a caller's mistake, or for a target that is away."""
    try:
        return Outcome(tool.call(context, _checked(tool, arguments)))
    except OperatorError as error:
        return outcome_of(error)
    except Exception:
        log.exception("%s failed", tool.name)
        return failed("internal", f"{tool.name} failed; the server's log says more")


def _checked(tool: AgentTool, arguments: Mapping[str, object]) -> Arguments:
    """Raises ToolRefusedError."""
    try:
        return tool.arguments.model_validate(dict(arguments))
    except ValidationError as error:
        raise ToolRefusedError(_sentence_of(error, tool), parameters=sorted(tool.arguments.model_fields)) from None


def outcome_of(error: OperatorError) -> Outcome:
    if isinstance(error, DocumentError):
        error = refused(*error.refusals)
    return failed(code_of(error), str(error), error.details if isinstance(error, ToolRefusedError) else {})


def code_of(error: OperatorError) -> ErrorCode:
    return _CODES.get(type(error), "refused")


def failed(code: ErrorCode, sentence: str, details: Mapping[str, object] = MappingProxyType({})) -> Outcome:
    """The one shape of errors, for interfaces too: a caller without a token, a request that is too large."""
    return Outcome({"error": sentence, "code": code, "retryable": code in RETRYABLE, **details}, code)


def _sentence_of(error: ValidationError, tool: AgentTool) -> str:
    """One fault: the parameter, the value and what is allowed. For a misspelled name, the existing ones are listed."""
    faults = error.errors(include_url=False)
    fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
    name = ".".join(map(str, fault["loc"])) or "arguments"
    if fault["type"] == "extra_forbidden":
        known = sorted(tool.arguments.model_fields)
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"{tool.name} has no parameter {name}{nearest(name, known)}; {takes}"
    if fault["type"] == "missing":
        return f"{tool.name} needs the parameter {name}"
    allowed = allowed_instead(fault)[1]
    return f"{name} is {text_of(redacted(fault['input'], name))}: {MUST_BE % allowed if allowed else fault['msg']}"


TOOLS: Final[tuple[AgentTool, ...]] = (
    rl_list_environments.rl_list_environments,
    rl_list_environments.rl_select_environment,
    rl_edit_config.rl_get_current_config,
    rl_edit_config.rl_edit_config,
    rl_test_inference.rl_test_inference,
    rl_start_training.rl_start_training,
    rl_list_runs.rl_check_status,
    rl_get_logs.rl_get_logs,
    rl_start_training.rl_stop_training,
    rl_get_results.rl_get_results,
    rl_get_rollouts.rl_get_rollouts,
    rl_get_results.rl_sample,
    rl_list_runs.rl_list_runs,
    rl_get_results.rl_compare,
    rl_start_training.rl_health_check,
)
BY_NAME: Final[Mapping[str, AgentTool]] = {tool.name: tool for tool in TOOLS}
