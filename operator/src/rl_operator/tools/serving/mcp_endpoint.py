"""MCP over HTTP. Its library is imported with the first request: it takes 25 MiB, which a server that only shows pages
does not need. That takes half a second, once.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.tools.agent_tool import AgentTool

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from rl_operator.tools.serving.mcp_server import Call


class McpEndpoint:
    """An ASGI application, for as long as `running` is open."""

    def __init__(self, tools: Iterable[AgentTool], call: "Call", largest_body: int) -> None:
        self._tools = tuple(tools)
        self._call = call
        self._largest_body = largest_body
        self._group: anyio.abc.TaskGroup | None = None
        self._first = anyio.Lock()
        self._app: ASGIApp | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as self._group:
            yield
            self._group.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._first:
            self._app = self._app or await self._begun()
        await self._app(scope, receive, send)

    async def _begun(self) -> ASGIApp:
        """The sessions live in a task of their own: the one of the first request ends."""
        from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

        from rl_operator.tools.serving.mcp_server import build_server

        assert self._group is not None
        server = build_server(self._tools, self._call)
        sessions = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=self._largest_body
        )
        await self._group.start(_run, sessions)
        return StreamableHTTPASGIApp(sessions)


async def _run(
    sessions: "StreamableHTTPSessionManager", *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    async with sessions.run():
        task_status.started()
        await anyio.sleep_forever()
