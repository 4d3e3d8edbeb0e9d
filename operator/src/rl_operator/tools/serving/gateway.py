"""The tools over HTTP: plain routes for programs, and MCP at /mcp. Callers are served with their own rights."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import anyio
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.operator_errors import ForbiddenError
from rl_operator.tools.agent_tool import AgentTool
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.caller_sessions import Sessions
from rl_operator.tools.serving.tool_gate import (
    MAX_BODY,
    MCP_PATH,
    PROBE_PATH,
    TokenCheck,
    ToolCaller,
    ToolGate,
    json_response,
)
from rl_operator.tools.toolset import Outcome, dispatch, failed

if TYPE_CHECKING:
    from rl_operator.tools.serving.mcp_server import Call


class McpEndpoint:
    """MCP as an ASGI application, for as long as `running` is open.

    Its library is imported with the first request: it takes half a second once, and 25 MiB, which a server that only
    shows pages does not need.
    """

    def __init__(self, tools: Iterable[AgentTool], call: "Call", largest_body: int) -> None:
        self._tools = tuple(tools)
        self._call = call
        self._largest_body = largest_body
        self._asked, self._ready = anyio.Event(), anyio.Event()
        self._app: ASGIApp | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve)
            yield
            group.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._asked.set()
        await self._ready.wait()
        assert self._app is not None
        await self._app(scope, receive, send)

    async def _serve(self) -> None:
        """In a task of its own, in which the sessions live: the one of the first request ends."""
        await self._asked.wait()
        from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

        from rl_operator.tools.serving.mcp_server import build_server

        server = build_server(self._tools, self._call)
        sessions = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=self._largest_body
        )
        async with sessions.run():
            self._app = StreamableHTTPASGIApp(sessions)
            self._ready.set()
            await anyio.sleep_forever()


LONGEST_WAIT_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 28.0
"""HTTP clients time out after thirty."""


@dataclass(frozen=True)
class ToolRoute:
    """A route, its tool, and which part of the tool's answer is returned if not the whole."""

    method: str
    path: str
    tool: str
    part: str = ""


Page = Callable[[ASGIApp, TokenCheck], ASGIApp]
"""The same with the page at /ui, which shares the check of tokens."""

ROUTES: Final = (
    ToolRoute("GET", "/environments", "rl_list_environments", part="environments"),
    ToolRoute("POST", "/environments/{name:path}/select", "rl_select_environment"),
    ToolRoute("GET", "/config", "rl_get_current_config"),
    ToolRoute("POST", "/config", "rl_edit_config"),
    ToolRoute("POST", "/runs", "rl_start_training"),
    ToolRoute("GET", "/runs", "rl_list_runs"),
    ToolRoute("GET", "/runs/{run_id}", "rl_check_status"),
    ToolRoute("POST", "/runs/{run_id}/stop", "rl_stop_training"),
    ToolRoute("GET", "/runs/{run_id}/metrics", "rl_get_results"),
    ToolRoute("GET", "/runs/{run_id}/logs", "rl_get_logs"),
    ToolRoute("POST", "/runs/{run_id}/sample", "rl_sample"),
    ToolRoute("POST", "/test/inference", "rl_test_inference"),
    ToolRoute("GET", "/health", "rl_health_check"),
)


def build_app(
    tools: Iterable[AgentTool],
    sessions: Sessions,
    calls: Calls,
    *,
    hosts: Collection[str] = (),
    pinned: bool = False,
    page: Page | None = None,
    answer_seconds: float = ANSWER_SECONDS,
) -> ASGIApp:
    """`hosts`: allowed host names, besides those that cannot be public domains; `pinned`: callers may name no other
    namespace than the context's; `answer_seconds`: whatever happens, a call is answered by then.
    """
    offered = {tool.name: tool for tool in tools}

    async def call(tool: AgentTool, arguments: Mapping[str, object], request: Request) -> Outcome:
        caller: ToolCaller = request.state.caller
        with anyio.move_on_after(answer_seconds):
            return await calls.call(
                lambda context: dispatch(tool, context, arguments),
                lambda: _context_of(sessions, caller, pinned=pinned),
                waits=tool.waits(arguments),
            )
        late = f"{tool.name} has not answered within {answer_seconds:g} s; look at what it did before you call it again"
        return failed("timeout", late)

    mcp = McpEndpoint(offered.values(), call, MAX_BODY)
    routes = [Route(PROBE_PATH, _probed), Route(MCP_PATH, mcp, methods=["POST"])]
    routes += [
        Route(route.path, _endpoint(route, offered.get(route.tool), call), methods=[route.method]) for route in ROUTES
    ]
    app = Starlette(routes=routes, lifespan=lambda _: mcp.running(), exception_handlers={HTTPException: _no_such_way})
    app.router.redirect_slashes = False  # only 200 is success
    tokens = TokenCheck(sessions, calls)
    gate = ToolGate(app, tokens, hosts)
    return gate if page is None else page(gate, tokens)


@contextmanager
def _context_of(sessions: Sessions, caller: ToolCaller, *, pinned: bool) -> Iterator[CallContext]:
    with sessions.context(caller.token) as context:
        namespace = caller.namespace or context.namespace
        if pinned and namespace != context.namespace:
            raise ForbiddenError(f"this server serves the namespace {context.namespace} alone, not {namespace}")
        yield replace(context, agent=caller.agent, namespace=namespace, longest_wait=LONGEST_WAIT_SECONDS)


def _endpoint(
    route: ToolRoute,
    tool: AgentTool | None,
    call: Callable[[AgentTool, Mapping[str, object], Request], Awaitable[Outcome]],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        outcome = await answered(request)
        part = route.part if outcome.code is None else ""
        return json_response(outcome.answer[part] if part else outcome.answer, outcome.code)

    async def answered(request: Request) -> Outcome:
        if tool is None:
            return failed("forbidden", f"this server does not offer {route.tool}: it changes nothing (--read-only)")
        try:
            arguments = _arguments(request, await request.body())
        except ValueError as error:
            return failed("refused", str(error))
        return await call(tool, arguments, request)

    return endpoint


def _arguments(request: Request, body: bytes) -> dict[str, object]:
    """From the path, the query and a JSON body; each name once. Raises ValueError."""
    places = {"path": request.path_params, "query": _query(request), "body": _members(request.method, body)}
    arguments: dict[str, Any] = {}
    for place, given in places.items():
        if twice := sorted(arguments.keys() & given.keys()):
            raise ValueError(f"{twice[0]} is in the {place} and before it: give it once")
        arguments |= given
    return arguments


def _query(request: Request) -> dict[str, object]:
    """Names that occur several times have lists."""
    query = request.query_params
    lists = {name: query.getlist(name) for name in query}
    return {name: values if len(values) > 1 else values[0] for name, values in lists.items()}


def _members(method: str, body: bytes) -> dict[str, object]:
    if not body:
        return {}
    if method == "GET":
        raise ValueError("a GET request takes its parameters in the query: send no body")
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(members, dict):
        raise ValueError("the body must be a JSON object with the tool's parameters")  # noqa: TRY004 -- a caller's
    return members


async def _probed(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _no_such_way(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    paths = sorted({f"{route.method} {route.path.replace(':path', '')}" for route in ROUTES} | {f"POST {MCP_PATH}"})
    outcome = failed("not_found", f"there is no {request.method} {request.url.path[:100]}", {"routes": paths})
    response = json_response(outcome.answer, outcome.code)
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        response.headers["Allow"] = ", ".join(sorted({method for route in found for method in route.methods}))
    return response
