"""MCP over stdin and stdout, with the real client of the newest generation and the recorded words of an older one."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).parents[4]
PROGRAM = ["-m", "tests.unit.rl_operator.tools.stdio_program"]


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(command=sys.executable, args=[*PROGRAM, str(folder)], cwd=ROOT)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def test_a_client_reads_the_tools_and_calls_them(tmp_path: Path) -> None:
    async with connected(tmp_path) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        status = await session.call_tool("rl_check_status", {"run_id": "a"})
    assert tools["rl_check_status"].input_schema == {
        "type": "object",
        "properties": {
            "run_id": {"type": "string", "description": "Name of a run."},
            "wait_seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": 240,
                "default": 0,
                "description": "How long to wait for news.",
            },
        },
        "required": ["run_id"],
        "additionalProperties": False,
    }
    assert status.structured_content == {"run_id": "a", "status": "running", "given_up": False}
    assert json.loads(status.content[0].text) == status.structured_content
    assert not status.is_error


async def test_a_refusal_is_an_answer_that_says_what_helps(tmp_path: Path) -> None:
    async with connected(tmp_path) as session:
        refused = await session.call_tool("rl_select_environment", {"name": "chess"})
        wrong = await session.call_tool("rl_check_status", {"run": "a"})
    assert refused.is_error
    assert refused.structured_content["available"] == ["sorting"]
    assert wrong.structured_content["error"] == "rl_check_status needs the parameter run_id"
