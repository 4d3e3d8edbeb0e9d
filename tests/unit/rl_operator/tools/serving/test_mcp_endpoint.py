"""MCP begins with its first request, once."""

import asyncio
import subprocess
import sys

import httpx
from tests.unit.rl_operator.tools.serving.page_callers import ADDRESS
from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.tools.agent_tool import AgentTool
from rl_operator.tools.serving.mcp_endpoint import McpEndpoint
from rl_operator.tools.toolset import Outcome

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
SENT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


async def never(tool: AgentTool, arguments: object, request: object) -> Outcome:
    raise NotImplementedError


async def test_first_requests_that_come_together_begin_it_once() -> None:
    endpoint = McpEndpoint(TOOLS, never, 1_000)
    async with endpoint.running():
        transport = httpx.ASGITransport(endpoint)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=SENT) as client:
            answers = await asyncio.gather(*(client.post("/mcp", json=LIST) for _ in range(5)))
            begun = endpoint._app
            answers.append(await client.post("/mcp", json=LIST))
    assert endpoint._app is begun
    assert [len(answer.json()["result"]["tools"]) for answer in answers] == [len(TOOLS)] * 6


def test_a_server_that_nobody_calls_does_not_import_it(process: None) -> None:
    imports = "import sys, rl_operator.tools.serving.gateway, rl_operator.ui.serving.page_gate"
    program = f"{imports}; print('mcp' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout == "False\n"
