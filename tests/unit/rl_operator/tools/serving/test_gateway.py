"""The HTTP server, as a process on loopback: routes, refusals, and rejected callers."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.tools.gateways import Gateway, running_gateway
from tests.unit.rl_operator.tools.serving.page_callers import ADDRESS
from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.tools.agent_tool import AgentTool
from rl_operator.tools.serving.gateway import ROUTES, McpEndpoint
from rl_operator.tools.serving.tool_gate import MAX_BODY
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


@pytest.fixture(scope="module")
def reading_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Read-only, and of one namespace."""
    with running_gateway(tmp_path_factory.mktemp("reading"), "--read-only", "--pinned") as running:
        yield running


# --- answers -------------------------------------------------------------------------------------------------------
def test_environments_are_a_bare_array(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/environments").json == [{"name": "gsm8k"}, {"name": "sorting"}]
    assert gateway.ask("GET", "/environments?query=sort").json == [{"name": "sorting"}]


@pytest.mark.parametrize(
    ("method", "path", "body", "part"),
    [
        pytest.param("POST", "/environments/sorting/select", None, {"run_id": "sorting-0a1b2c3d"}, id="select"),
        pytest.param("POST", "/config", {"field": "a", "value": [1, None]}, {"value": [1, None]}, id="edit"),
        pytest.param("GET", "/runs/a?wait_seconds=0", None, {"run_id": "a", "status": "running"}, id="status"),
        pytest.param("POST", "/runs/a/stop", {}, {"run_id": "a", "status": "stopping"}, id="stop"),
        pytest.param("GET", "/health", None, {"namespace": "default", "longest_wait": 20.0}, id="health"),
    ],
)
def test_success_is_200_with_the_tools_answer(
    gateway: Gateway, method: str, path: str, body: Any, part: dict[str, Any]
) -> None:
    answer = gateway.ask(method, path, body)
    assert answer.status == 200
    assert answer.json | part == answer.json
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        pytest.param(
            "POST", "/environments/own/x/select", None, 400, "there is no environment 'own/x'", id="refused by the tool"
        ),
        pytest.param("POST", "/config", {"value": 1}, 400, "rl_edit_config needs the parameter field", id="missing"),
        pytest.param("GET", "/runs/a?wait_seconds=soon", None, 400, 'wait_seconds is "soon"', id="wrong type"),
        pytest.param("POST", "/config", [1], 400, "the body must be a JSON object", id="no object"),
        pytest.param("POST", "/config", b"{", 400, "the body is not JSON", id="no JSON"),
        pytest.param("POST", "/config", b'{"field": "\\ud800"}', 400, "the body is not JSON", id="half a character"),
        pytest.param("POST", "/config", b"[" * 9_000, 400, "the body is not JSON", id="too deep"),
        pytest.param("POST", "/runs/a/stop", {"run_id": "b"}, 400, "run_id is in the body and before it", id="twice"),
        pytest.param("GET", "/runs/a", {}, 400, "a GET request takes its parameters in the query", id="GET with body"),
        pytest.param("GET", "/runs/unknown", None, 404, "there is no run 'unknown'", id="not found by the tool"),
        pytest.param("GET", "/secrets", None, 404, "there is no GET /secrets", id="no such route"),
        pytest.param("GET", "/environments/", None, 404, "there is no GET /environments/", id="no redirects"),
        pytest.param("DELETE", "/runs/a", None, 405, "there is no DELETE /runs/a", id="no such method"),
        pytest.param("OPTIONS", "/config", None, 405, "there is no OPTIONS /config", id="no CORS"),
        pytest.param("GET", "/mcp", None, 405, "there is no GET /mcp", id="no stream without a request"),
    ],
)
def test_refusals_explain_themselves(  # noqa: PLR0917 -- the table's columns
    gateway: Gateway, method: str, path: str, body: Any, status: int, error: str
) -> None:
    answer = gateway.ask(method, path, body)
    assert answer.json["error"].startswith(error)
    assert answer.status == status
    assert not answer.json["retryable"]


def test_an_internal_error_is_500_and_reveals_nothing(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/runs/a/metrics")
    assert answer.status == 400  # it takes no run_id
    fault = gateway.ask(*mcp("tools/call", {"name": "rl_get_results"}))
    assert fault.json["result"]["structuredContent"] == {
        "error": "rl_get_results failed; the server's log says more",
        "code": "internal",
        "retryable": False,
    }


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
_PARAMETERS = st.dictionaries(st.sampled_from(["field", "value", "run_id", "name", "wait_seconds", "query"]), _VALUES)
_BODIES = (_VALUES | _PARAMETERS).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200)


@settings(max_examples=100, deadline=None)
@given(way=st.sampled_from([way for way in ROUTES if way.tool not in ("rl_get_results", "rl_get_logs")]), body=_BODIES)
def test_no_request_is_an_internal_error(gateway: Gateway, way: Any, body: bytes) -> None:
    path = way.path.replace("{name:path}", "sorting").replace("{run_id}", "a")
    assert gateway.ask(way.method, path, body).status < 500
    assert gateway.ask("POST", "/mcp", body, {"Content-Type": "application/json", "Accept": BOTH}).status < 500


BOTH = "application/json, text/event-stream"


def mcp(method: str, params: dict[str, Any]) -> tuple[str, str, bytes, dict[str, str]]:
    """A call over MCP as a client of the first generation sends it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Content-Type": "application/json", "Accept": BOTH, "MCP-Protocol-Version": "2025-06-18"}
    return "POST", "/mcp", json.dumps(message).encode(), headers


# --- rejected callers ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("method", "path"), [("GET", "/environments"), ("POST", "/mcp"), ("GET", "/nothing")])
@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param({}, id="none"),
        pytest.param({"Authorization": "Bearer "}, id="empty"),
        pytest.param({"Authorization": "Basic dXNlcjpwYXNz"}, id="another scheme"),
        pytest.param({"Authorization": "Bearer wrong-but-well-spelled"}, id="wrong"),
        pytest.param({"Authorization": "Bearer a b"}, id="two words"),
    ],
)
def test_every_call_needs_a_token(gateway: Gateway, method: str, path: str, authorization: dict[str, str]) -> None:
    answer = gateway.ask(method, path, b"{}" if method == "POST" else None, authorization, known=False)
    refusal = answer.json["error"]["data"] if path == "/mcp" else answer.json
    assert (answer.status, refusal["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_probes_need_no_token(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/healthz", known=False).text == "ok\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Host": "rebound.attacker.com:8080"}, 403, id="rebound"),
        pytest.param({"Host": ""}, 403, id="no name"),
        pytest.param({"Host": "tools.example.com"}, 200, id="its public name"),
        pytest.param({"Host": "localhost:1"}, 200, id="localhost"),
        pytest.param({"Origin": "http://127.0.0.1:8080"}, 403, id="a page of loopback"),
        pytest.param({"Origin": "null"}, 403, id="a page of nowhere"),
    ],
)
def test_browsers_are_refused(gateway: Gateway, headers: dict[str, str], status: int) -> None:
    answer = gateway.ask("GET", "/health", None, headers)
    assert answer.status == status
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["/config", "/mcp"])
def test_bodies_are_limited(gateway: Gateway, path: str) -> None:
    fitting = b" " * MAX_BODY
    assert gateway.ask("POST", path, fitting).status != 413
    assert gateway.ask("POST", path, fitting + b" ").status == 413


def test_a_body_without_a_length_is_limited_too(gateway: Gateway) -> None:
    head = "POST /config HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    host, port = gateway.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"{head}Authorization: Bearer {gateway.token}\r\n\r\n".encode() + chunk * 4 + b"1\r\n \r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.process
def test_read_only_offers_tools_without_effects(reading_gateway: Gateway) -> None:
    listed = reading_gateway.ask(*mcp("tools/list", {})).json["result"]["tools"]
    assert [tool["name"] for tool in listed] == [
        "rl_list_environments", "rl_check_status", "rl_get_results", "rl_get_logs",
        "rl_health_check",
    ]  # fmt: skip
    refused = reading_gateway.ask("POST", "/runs/a/stop")
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    called = reading_gateway.ask(*mcp("tools/call", {"name": "rl_stop_training", "arguments": {"run_id": "a"}}))
    assert "there is no tool 'rl_stop_training'" in called.json["error"]["message"]


def test_agents_give_their_name_and_namespace(gateway: Gateway, reading_gateway: Gateway) -> None:
    elsewhere = {"X-RL-Agent": "reviewer", "X-RL-Namespace": "team-a"}
    answer = gateway.ask("GET", "/health", None, elsewhere).json
    assert (answer["agent"], answer["namespace"]) == ("reviewer", "team-a")
    assert gateway.ask("GET", "/health", None, {"X-RL-Namespace": "../secrets"}).status == 400
    assert reading_gateway.ask("GET", "/health", None, elsewhere).status == 403
    assert reading_gateway.ask("GET", "/health", None, {"X-RL-Namespace": "default"}).status == 200


# --- callers who would keep others out -------------------------------------------------------------------------------
@contextlib.contextmanager
def half_open(gateway: Gateway, number: int, sent: bytes = b"GET /environments HT") -> Iterator[list[socket.socket]]:
    host, port = gateway.address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(number):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            with contextlib.suppress(OSError):  # closed for those that came after it
                connection.sendall(sent)
            connections.append(connection)
        yield connections


def test_half_open_connections_keep_nobody_out(gateway: Gateway) -> None:
    with half_open(gateway, 1_500):
        assert [gateway.ask("GET", "/environments").status for _ in range(3)] == [200] * 3


def test_a_head_has_a_deadline(process: None, tmp_path: Path) -> None:
    """Also the second one of a connection, and one of which a part comes now and then."""
    with running_gateway(tmp_path, "--short-heads") as gateway:
        head = f"GET /environments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.token}\r\n".encode()
        with half_open(gateway, 1) as [connection]:
            assert until_closed(connection) == b""
        with half_open(gateway, 1, head) as [connection]:
            for number in range(1_000):
                try:
                    connection.sendall(f"X-{number}: 1\r\n".encode())
                except OSError:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("a head of a thousand lines was listened to")
        with half_open(gateway, 1, head + b"\r\n") as [connection]:
            connection.sendall(b"GET /")
            assert until_closed(connection).startswith(b"HTTP/1.1 200 OK")


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def test_whoever_guesses_tokens_is_told_to_wait(process: None, tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        wrong = {"Authorization": "Bearer " + "w" * 32}
        codes = [gateway.ask("GET", "/environments", headers=wrong, known=False).status for _ in range(30)]
        assert codes == [401] * 20 + [429] * 10
        answer = gateway.ask("GET", "/environments", headers=wrong, known=False)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json["error"].startswith("too many wrong tokens came from 127.0.0.1: correct the token")
        assert gateway.ask("GET", "/environments").status == 200  # at the same address


def test_a_namespace_given_twice_is_refused(gateway: Gateway) -> None:
    with contextlib.closing(gateway.connect()) as connection:
        connection.putrequest("GET", "/health")
        for name, value in (*gateway.headers.items(), ("X-RL-Namespace", "default"), ("x-rl-namespace", "other")):
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]) == (
            400,
            "the header X-RL-Namespace is there twice: send it once",
        )
