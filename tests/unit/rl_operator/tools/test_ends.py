"""How the servers end: on a signal, or when the caller leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.rl_operator.tools.gateways import END_SECONDS, ROOT, Gateway, running_gateway

pytestmark = pytest.mark.process

WAITING = "/runs/a?wait_seconds=240"


def threads_of(pid: int) -> int:
    """Calls being answered: one thread each."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())) - 1


def until_threads(gateway: Gateway, count: int) -> None:
    deadline = time.monotonic() + 20
    while threads_of(gateway.process.pid) != count:
        assert time.monotonic() < deadline, f"{threads_of(gateway.process.pid)} threads after 20 s, not {count}"
        time.sleep(0.02)


def test_at_sigterm_it_answers_waiting_calls_and_ends(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, ThreadPoolExecutor(32) as clients:
        waiting = [clients.submit(gateway.ask, "GET", WAITING) for _ in range(32)]
        until_threads(gateway, 32)
        for _ in range(8):  # more than may wait
            assert gateway.ask("GET", WAITING).json["given_up"] is False
        gateway.process.send_signal(signal.SIGTERM)
        answers = [each.result(20) for each in waiting]
        assert {(answer.status, answer.json["given_up"]) for answer in answers} == {(200, True)}
        assert gateway.process.wait(END_SECONDS) == 0


def test_every_call_is_answered_and_the_server_ends_whatever_happens(tmp_path: Path) -> None:
    """Though the thread that makes it does not notice."""
    with running_gateway(tmp_path, "--hurried") as gateway:
        late = gateway.ask("GET", "/runs/a/logs")
        gateway.process.terminate()
        assert gateway.process.wait(END_SECONDS) == 0
    assert (late.status, late.json["code"], late.json["retryable"]) == (504, "timeout", True)
    assert late.json["error"].startswith("rl_get_logs has not answered within 2 s")


def test_a_call_ends_when_its_caller_leaves(gateway: Gateway) -> None:
    connections = [gateway.connect() for _ in range(3)]
    body = json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "rl_check_status", "arguments": {"run_id": "a", "wait_seconds": 240}},
    })  # fmt: skip
    mcp = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connections[0].request("GET", WAITING, headers=gateway.headers)
    connections[1].request("POST", "/mcp", body, gateway.headers | mcp | {"MCP-Protocol-Version": "2025-06-18"})
    connections[2].request("POST", "/mcp", body, gateway.headers | mcp)
    until_threads(gateway, 3)
    for connection in connections:
        connection.close()
    until_threads(gateway, 0)


@pytest.mark.parametrize("ending", ["closed stdin", "SIGINT"])
def test_a_stdio_server_ends_during_a_wait(tmp_path: Path, ending: str) -> None:
    command = [sys.executable, "-m", "tests.unit.rl_operator.tools.stdio_program", str(tmp_path)]
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "rl_check_status", "arguments": {"run_id": "a", "wait_seconds": 240}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(json.dumps(message) + "\n" for message in messages).encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        assert json.loads(process.stdout.readline())["id"] == 3
        if ending == "closed stdin":
            process.stdin.close()
        else:
            os.kill(process.pid, signal.Signals[ending])
        assert process.wait(END_SECONDS) == (0 if ending == "closed stdin" else -signal.Signals[ending])
