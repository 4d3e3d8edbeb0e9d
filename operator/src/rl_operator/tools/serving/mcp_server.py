"""The tools over the Model Context Protocol: one server for every transport, of either generation of clients."""

import json
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic_core import to_json

from rl_operator.documents.parse import nearest
from rl_operator.tools.agent_tool import AgentTool, Answer, input_schema
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.skill import in_short
from rl_operator.tools.toolset import Outcome, dispatch

Call = Callable[[AgentTool, dict[str, Any], Any], Awaitable[Outcome]]
"""Receives the tool, its arguments and the HTTP request (None over stdio)."""

INSTRUCTIONS: Final = in_short()

_REPEATABLE: Final = frozenset({"rl_edit_config", "rl_start_training"})
"""For the tools that write: a repeated call changes nothing more."""


PROGRESS_SECONDS: Final = 10.0
"""Between two signs of life of a call. Clients built on the TypeScript SDK end a call after 60 s without any."""


def build_server(tools: Iterable[AgentTool], call: Call, progress_seconds: float = PROGRESS_SECONDS) -> Server[Any]:
    """`call` makes the call; it always gets one of `tools`."""
    by_name = {tool.name: tool for tool in tools}
    described = [described_tool(tool) for tool in by_name.values()]

    async def list_tools(_: ServerRequestContext, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=described)

    async def call_tool(request: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}{nearest(params.name, by_name)}")
        async with anyio.create_task_group() as group:
            group.start_soon(_show_life, request, progress_seconds)
            outcome = await call(tool, params.arguments or {}, request.request)
            group.cancel_scope.cancel()
        return called(outcome.answer, is_error=outcome.code is not None)

    return Server(
        "rl-operator",
        version=version("rl-operator"),
        title="RL training runs",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _show_life(request: ServerRequestContext, seconds: float) -> None:
    """Progress notifications, for a client that asked for them; it may then extend its own deadline."""
    waited = 0.0
    while True:
        await anyio.sleep(seconds)
        waited += seconds
        await request.session.report_progress(waited, message=f"waiting for {waited:.0f} s")


def described_tool(tool: AgentTool) -> types.Tool:
    """Hints for clients that ask the user before a call: what the call may change."""
    return types.Tool(
        name=tool.name, description=tool.description, input_schema=input_schema(tool), annotations=_hints(tool)
    )


def _hints(tool: AgentTool) -> types.ToolAnnotations:
    """Only what differs from MCP's defaults: destructive, not to be repeated, and about an open world."""
    if tool.reads_only:
        return types.ToolAnnotations(read_only_hint=True)
    repeatable = tool.effect == "stops" or tool.name in _REPEATABLE
    return types.ToolAnnotations(
        destructive_hint=None if tool.effect == "stops" else False, idempotent_hint=True if repeatable else None
    )


def called(answer: Answer, *, is_error: bool) -> types.CallToolResult:
    """The same JSON twice: as a value, and as text for clients that show models only text."""
    text = to_json(answer, inf_nan_mode="null").decode()
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=json.loads(text), is_error=is_error)


def serve_stdio(tools: Iterable[AgentTool], context: CallContext, progress_seconds: float = PROGRESS_SECONDS) -> None:
    """For the one client at the other end of stdin and stdout, until it closes them."""
    # The thread that waits for stdin gets no KeyboardInterrupt: Ctrl-C ends the process in the default way.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve_stdio, tuple(tools), context, progress_seconds)


async def _serve_stdio(tools: tuple[AgentTool, ...], context: CallContext, progress_seconds: float) -> None:
    calls = Calls()

    async def call(tool: AgentTool, arguments: dict[str, object], _: object) -> Outcome:
        return await calls.call(
            lambda attended: dispatch(tool, attended, arguments),
            lambda: nullcontext(context),
            waits=tool.waits(arguments),
        )

    server = build_server(tools, call, progress_seconds)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())
