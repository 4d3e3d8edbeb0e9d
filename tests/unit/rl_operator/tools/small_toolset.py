"""A small set of tools, one of each kind, for tests of the servers."""

import threading
from typing import Any

from pydantic import Field

from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, NoSuchRunError, ToolRefusedError
from rl_operator.tools.call_context import CallContext

POLL_SECONDS = 0.02


class Search(Arguments):
    query: str | None = Field(default=None, description="Part of a name.")


class Choice(Arguments):
    name: str = Field(description="Name of an environment.")


class Edit(Arguments):
    field: str = Field(description="Name of a field.")
    value: Any = Field(default=None, description="What it is set to.")


class Look(Arguments):
    run_id: str = Field(description="Name of a run.")
    wait_seconds: float = Field(default=0, ge=0, le=240, description="How long to wait for news.")


class OneRun(Arguments):
    run_id: str = Field(description="Name of a run.")


class Nothing(Arguments):
    pass


def list_environments(context: CallContext, arguments: Search) -> Answer:
    names = [name for name in ("gsm8k", "sorting") if (arguments.query or "") in name]
    return {"environments": [{"name": name} for name in names], "count": len(names), **context.where()}


def select_environment(context: CallContext, arguments: Choice) -> Answer:
    if arguments.name != "sorting":
        raise ToolRefusedError(f"there is no environment {arguments.name!r}", available=["sorting"])
    return {"run_id": "sorting-0a1b2c3d", "caller": context.caller}


def edit(_: CallContext, arguments: Edit) -> Answer:
    return {"field": arguments.field, "value": arguments.value}


waits: set[str] = set()
"""The runs for which a call waits now."""


def check_status(context: CallContext, arguments: Look) -> Answer:
    """Waits for a change that never comes."""
    if arguments.run_id == "unknown":
        raise NoSuchRunError("there is no run 'unknown'", active_runs=["a"])
    left = min(arguments.wait_seconds, context.longest_wait)
    waits.add(arguments.run_id)
    while left > 0 and context.pause(POLL_SECONDS):
        left -= POLL_SECONDS
    waits.discard(arguments.run_id)
    return {"run_id": arguments.run_id, "status": "running", "given_up": context.given_up.is_set()}


def stop(_: CallContext, arguments: OneRun) -> Answer:
    return {"run_id": arguments.run_id, "status": "stopping"}


def health(context: CallContext, _: Nothing) -> Answer:
    return {**context.where(), "longest_wait": context.longest_wait, "agent": context.agent, "waits": sorted(waits)}


def broken(_: CallContext, __: Nothing) -> Answer:
    raise LookupError("this very server has a fault, and /secret/path is part of its message")


def be_deaf(_: CallContext, __: OneRun) -> Answer:
    """Like a tool that waits for an unresponsive API server."""
    threading.Event().wait(600)
    return {}


TOOLS = (
    AgentTool("rl_list_environments", "Environments", "Lists what can be trained.", Search, list_environments, "reads"),
    AgentTool("rl_select_environment", "Select", "Drafts a run.", Choice, select_environment, "drafts"),
    AgentTool("rl_edit_config", "Edit", "Sets a field.", Edit, edit, "drafts"),
    AgentTool("rl_check_status", "Status", "Looks at a run.", Look, check_status, "reads"),
    AgentTool("rl_stop_training", "Stop", "Stops a run.", OneRun, stop, "stops"),
    AgentTool("rl_get_results", "Results", "Is out of order.", Nothing, broken, "reads"),
    AgentTool("rl_get_logs", "Logs", "Hears of no end.", OneRun, be_deaf, "reads"),
    AgentTool("rl_health_check", "Health", "Says who answers.", Nothing, health, "reads"),
)
