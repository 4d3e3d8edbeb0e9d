"""Agents: real MCP clients over either transport, as their programs see the tools."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

RLCTL = str(Path(sys.executable).with_name("rlctl"))
END_SECONDS = 60.0


@dataclass(frozen=True)
class Agent:
    client: Client
    portal: BlockingPortal

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a successful call."""
        return answer_of(self.portal.call(self.client.call_tool, tool, arguments))

    def later(self, tool: str, **arguments: Any) -> "Future[CallToolResult]":
        """In the background, while the test plays what the call waits for."""
        return self.portal.start_task_soon(self.client.call_tool, tool, arguments)

    def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        called = self.portal.call(self.client.call_tool, tool, arguments)
        assert called.is_error, (tool, called.structured_content)
        assert {"error", "code", "retryable"} <= called.structured_content.keys()
        answer: dict[str, Any] = called.structured_content
        return answer


def answer_of(called: CallToolResult) -> dict[str, Any]:
    assert not called.is_error, called.structured_content
    answer: dict[str, Any] = called.structured_content
    return answer


@contextmanager
def agent_over_stdio(*options: str, env_vars: Mapping[str, str]) -> Iterator[Agent]:
    """`rlctl tools mcp` is the client's own child; it ends with it."""
    server = StdioServerParameters(command=RLCTL, args=["tools", "mcp", *options], env=dict(env_vars))
    with _connected(Client(stdio_client(server))) as agent:
        yield agent


@contextmanager
def agent_over_http(address: str, token: str, *, namespace: str, name: str = "") -> Iterator[Agent]:
    headers = {"Authorization": f"Bearer {token}", "X-RL-Namespace": namespace, "X-RL-Agent": name}
    with _connected(_over_http(f"{address}/mcp", headers)) as agent:
        yield agent


@asynccontextmanager
async def _over_http(url: str, headers: Mapping[str, str]) -> Any:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http_client,
        Client(streamable_http_client(url, http_client=http_client)) as client,
    ):
        yield client


@contextmanager
def _connected(client: AbstractAsyncContextManager[Client]) -> Iterator[Agent]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client) as connected:
        yield Agent(connected, portal)


@contextmanager
def tools_server(*options: str, env_vars: Mapping[str, str]) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`rlctl tools serve` on a free port: its address and its process."""
    command: Sequence[str] = [RLCTL, "tools", "serve", "--port", "0", *options]
    with subprocess.Popen(command, env=os.environ | env_vars, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().rpartition(" ")[2].strip().removesuffix("/mcp")
        try:
            yield address, process
        finally:
            process.terminate()
            process.wait(END_SECONDS)
