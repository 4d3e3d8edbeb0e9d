"""MCP as clients of each generation speak it, over stdio and HTTP."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.unit.rl_operator.tools.gateways import END_SECONDS, ROOT, Gateway

from rl_operator.tools.serving.mcp_server import INSTRUCTIONS, PROGRESS_SECONDS

STDIO_PROGRAM = ["-m", "tests.unit.rl_operator.tools.stdio_program"]
DOORS = ("stdio", "http")
STATUS = {"run_id": "a", "status": "running", "given_up": False}
READS = (True, None, None)
ANNOTATIONS = {
    "rl_list_environments": READS,
    "rl_select_environment": (None, False, None),
    "rl_edit_config": (None, False, True),
    "rl_check_status": READS,
    "rl_stop_training": (None, None, True),
    "rl_get_results": READS,
    "rl_get_logs": READS,
    "rl_health_check": READS,
}
"""Reads only, destroys, may be repeated; None: MCP's default (no, yes, no), which costs nothing to state."""


# --- the newest client, in its own protocol and in the one with a handshake ----------------------------------------
@contextlib.asynccontextmanager
async def connected(door: str, mode: str, gateway: Gateway, folder: Path) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=gateway.headers, timeout=END_SECONDS) as http_client:
        server = StdioServerParameters(command=sys.executable, args=[*STDIO_PROGRAM, str(folder)], cwd=ROOT)
        transport = (
            stdio_client(server)
            if door == "stdio"
            else streamable_http_client(f"{gateway.address}/mcp", http_client=http_client)
        )
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("door", DOORS)
async def test_a_client_reads_the_tools_and_calls_them(gateway: Gateway, door: str, mode: str, tmp_path: Path) -> None:
    async with connected(door, mode, gateway, tmp_path) as client:
        assert client.instructions == INSTRUCTIONS
        tools = (await client.list_tools()).tools
        status = await client.call_tool("rl_check_status", {"run_id": "a"})
        refused = await client.call_tool("rl_select_environment", {"name": "chess"})
        wrong = await client.call_tool("rl_check_status", {"run": "a"})
        with pytest.raises(MCPError, match="there is no tool 'rl_chek_status'; did you mean 'rl_check_status'"):
            await client.call_tool("rl_chek_status", {})
    hints = {tool.name: tool.annotations for tool in tools}
    shown = {
        name: (hint.read_only_hint, hint.destructive_hint, hint.idempotent_hint) for name, hint in hints.items() if hint
    }
    assert shown == ANNOTATIONS
    assert tools[0].input_schema == {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Part of a name."}},
    }
    assert (status.is_error, status.structured_content, json.loads(status.content[0].text)) == (False, STATUS, STATUS)
    assert refused.is_error
    assert refused.structured_content["available"] == ["sorting"]
    assert (
        wrong.structured_content["error"]
        == "rl_check_status has no parameter run; did you mean 'run_id'?; it takes run_id, wait_seconds"
    )


async def test_a_call_that_waits_shows_that_it_goes_on(gateway: Gateway, tmp_path: Path) -> None:
    """Clients that hear nothing for a minute give up."""
    assert PROGRESS_SECONDS < 30
    heard = anyio.Event()
    seen = list[float]()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        if len(seen) == 3:
            heard.set()

    async with connected("stdio", "auto", gateway, tmp_path) as client, anyio.create_task_group() as group:
        wait = {"run_id": "a", "wait_seconds": 240}
        group.start_soon(partial(client.call_tool, "rl_check_status", wait, progress_callback=note))
        with anyio.fail_after(END_SECONDS):
            await heard.wait()
        group.cancel_scope.cancel()
    assert seen == sorted(set(seen))


async def waits_of(client: Client) -> list[str]:
    return (await client.call_tool("rl_health_check", {})).structured_content["waits"]


@pytest.mark.parametrize(("door", "mode"), [("stdio", "auto"), ("stdio", "legacy"), ("http", "auto")])
async def test_a_wait_that_the_client_abandons_ends_on_the_server(
    gateway: Gateway, door: str, mode: str, tmp_path: Path
) -> None:
    """An older client over HTTP keeps its request open until the server's limit, 20 s."""
    run = f"{door}-{mode}"
    async with connected(door, mode, gateway, tmp_path) as client:
        with anyio.fail_after(END_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "rl_check_status", {"run_id": run, "wait_seconds": 240})
                while run not in await waits_of(client):
                    await anyio.sleep(0.05)
                group.cancel_scope.cancel()
            while run in await waits_of(client):
                await anyio.sleep(0.05)


async def test_a_client_without_a_token_is_rejected(gateway: Gateway) -> None:
    async with httpx2.AsyncClient(timeout=END_SECONDS) as http_client:
        with pytest.raises(BaseExceptionGroup) as ended:
            async with Client(streamable_http_client(f"{gateway.address}/mcp", http_client=http_client)):
                pass
    assert ended.group_contains(MCPError, match="missing bearer token")


# --- a client of the first generation: what mcp 1.30 puts on the wire, recorded --------------------------------------
def recorded(version: str) -> list[dict[str, Any]]:
    client = {"name": "mcp", "version": "0.1.0"}
    greeting = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    call = {"name": "rl_check_status", "arguments": {"run_id": "a"}}
    return [
        {"method": "initialize", "params": greeting, "jsonrpc": "2.0", "id": 0},
        {"method": "notifications/initialized", "jsonrpc": "2.0"},
        {"method": "tools/list", "jsonrpc": "2.0", "id": 1},
        {"method": "tools/call", "params": call, "jsonrpc": "2.0", "id": 2},
    ]


def over_http(gateway: Gateway, version: str) -> list[dict[str, Any]]:
    answers = []
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    for message in recorded(version):
        answer = gateway.ask("POST", "/mcp", message, headers)
        assert answer.status == (200 if "id" in message else 202)
        answers += [answer.json] if "id" in message else []
        headers["mcp-protocol-version"] = version
    return answers


def over_stdio(folder: Path, version: str) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(message) + "\n" for message in recorded(version))
    with subprocess.Popen(
        [sys.executable, *STDIO_PROGRAM, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(lines)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.wait(END_SECONDS) == 0
    return answers


@pytest.mark.parametrize(
    ("door", "version"),
    [("http", "2025-03-26"), ("http", "2025-06-18"), ("http", "2025-11-25"), ("stdio", "2025-06-18")],
)
def test_the_messages_of_an_older_client_are_understood(
    gateway: Gateway, door: str, version: str, tmp_path: Path
) -> None:
    greeting, tools, status = over_http(gateway, version) if door == "http" else over_stdio(tmp_path, version)
    assert greeting["result"]["protocolVersion"] == version
    assert greeting["result"]["serverInfo"]["name"] == "rl-operator"
    assert [tool["name"] for tool in tools["result"]["tools"]] == list(ANNOTATIONS)
    assert json.loads(status["result"]["content"][0]["text"]) == STATUS
    assert status["result"].get("structuredContent", STATUS) == STATUS


# --- and such a client itself ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.nightly("operator/src/rl_operator/tools/serving")
def test_an_older_client_itself(gateway: Gateway, door: str, tmp_path: Path) -> None:
    python = os.environ.get("RL_MCP1_PYTHON")
    if not python:
        pytest.skip("needs RL_MCP1_PYTHON: a Python with mcp 1.x (python3 -m venv V && V/bin/pip install mcp==1.30.0)")
    target = {
        "http": [f"{gateway.address}/mcp", gateway.token],
        "stdio": [sys.executable, *STDIO_PROGRAM, str(tmp_path)],
    }
    command = [python, str(Path(__file__).parents[1] / "mcp1_client.py"), door, *target[door]]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    seen: Mapping[str, Any] = json.loads(ended.stdout)
    assert (seen["server"], seen["instructions"]) == ("rl-operator", INSTRUCTIONS)
    assert seen["status"] == json.loads(seen["text"]) == STATUS
    assert seen["refused"] == [True, ["sorting"]]
    hints = {
        name: (hint.get("readOnlyHint"), hint.get("destructiveHint"), hint.get("idempotentHint"))
        for name, hint in seen["tools"].items()
    }
    assert hints == ANNOTATIONS
