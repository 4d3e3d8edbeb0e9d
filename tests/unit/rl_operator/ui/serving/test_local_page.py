"""Who on this machine may look, and whose browser may send something."""

import queue
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.operator_errors import RefusedError
from rl_operator.ui.live_runs import OpenStreams
from rl_operator.ui.serving.local_page import LocalGate, listen, local_app, opened_page

TOKEN = "of-this-server"
ADDRESS = "http://127.0.0.1:8000"
OWN = {"Cookie": f"rl-ui-8000={TOKEN}"}
FOLLOWED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"the page {Request(scope).url.path}")(scope, receive, send)


def notice(sentence: str, status: int) -> Response:
    return PlainTextResponse(sentence, status)


@pytest.fixture
async def browser() -> AsyncIterator[httpx.AsyncClient]:
    gate = httpx.ASGITransport(LocalGate(pages, TOKEN, notice))
    async with httpx.AsyncClient(transport=gate, base_url=ADDRESS) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "said"),
    [
        pytest.param("GET", "/runs", OWN, 200, "the page /runs", id="its cookie"),
        pytest.param("HEAD", "/runs", OWN, 200, "", id="only the head"),
        pytest.param("GET", "/runs", {}, 401, "Open the address that `rlctl ui` printed", id="nobody"),
        pytest.param("GET", "/runs", {"Cookie": "rl-ui-8000=wrong"}, 401, "Open", id="a wrong cookie"),
        pytest.param("GET", "/runs", {"Cookie": f"rl-ui-8001={TOKEN}"}, 401, "Open", id="of another port"),
        pytest.param("GET", "/runs", {"Cookie": f"rl-ui-8000=x; rl-ui-8000={TOKEN}"}, 401, "Open", id="two cookies"),
        pytest.param("GET", "/runs?token=wrong", OWN, 401, "Open", id="a wrong token"),
        pytest.param("GET", "/static/app.css", {}, 200, "the page", id="the look of a refusal"),
        pytest.param("GET", "/runs", OWN | {"Host": "rebound.attacker.com:8000"}, 403, "this machine", id="rebound"),
        pytest.param("GET", "/static/app.css", {"Host": "attacker.com"}, 403, "this machine", id="rebound, static"),
        pytest.param("POST", "/runs", OWN | {"Origin": ADDRESS}, 200, "the page", id="its own form"),
        pytest.param("POST", "/runs", OWN, 403, "not come from this page", id="a form of nowhere"),
        pytest.param("POST", "/runs", OWN | {"Origin": "http://127.0.0.1:8001"}, 403, "not come", id="another port"),
        pytest.param("POST", "/runs", OWN | {"Origin": "null"}, 403, "not come", id="a file"),
        pytest.param("POST", f"/runs?token={TOKEN}", {}, 403, "not come", id="a form with the token"),
        pytest.param("POST", "/runs", {"Origin": ADDRESS}, 401, "Open", id="a form of nobody"),
        pytest.param("OPTIONS", "/runs", {"Origin": "https://attacker.com"}, 403, "not come", id="a preflight"),
    ],
)
async def test_requests(  # noqa: PLR0917 -- the table's columns
    browser: httpx.AsyncClient, method: str, path: str, headers: dict[str, str], status: int, said: str
) -> None:
    answer = await browser.request(method, path, headers=headers)
    assert answer.status_code == status
    assert said in answer.text


async def test_the_token_becomes_a_cookie_and_leaves_the_address(browser: httpx.AsyncClient) -> None:
    answer = await browser.get(f"/runs?token={TOKEN}&phase=Failed")
    assert answer.headers["set-cookie"] == f"rl-ui-8000={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    assert 'content="0;url=/runs?phase=Failed"' in answer.text
    assert TOKEN not in answer.text
    assert (await browser.get("/runs?phase=Failed")).text == "the page /runs"


async def test_a_link_from_another_site_is_followed_from_here(browser: httpx.AsyncClient) -> None:
    """Its first request has no cookie, and the next one, of our own page, has."""
    first = await browser.get("/runs/default/a", headers=FOLLOWED)
    assert (first.status_code, 'content="0;url=/runs/default/a"' in first.text) == (200, True)
    second = await browser.get("/runs/default/a", headers=OWN | {"Sec-Fetch-Site": "same-origin"})
    assert second.text == "the page /runs/default/a"


async def test_no_address_leads_to_another_host(browser: httpx.AsyncClient) -> None:
    answer = await browser.get(f"{ADDRESS}//attacker.com/?token={TOKEN}")
    assert 'content="0;url=/attacker.com/"' in answer.text


WITH_TOKEN = "http://127.0.0.1:8000/?token=secret&x=1"


def test_a_port_in_use_is_named() -> None:
    with (
        listen(0) as taken,
        pytest.raises(RefusedError, match=r"cannot listen on port \d+: Address already in use; choose"),
    ):
        listen(taken.getsockname()[1])


def test_only_this_machine_is_listened_to() -> None:
    with listen(0) as listener:
        assert (listener.family, listener.getsockname()[0]) == (socket.AF_INET, "127.0.0.1")


def test_the_browsers_command_line_has_no_token() -> None:
    opened: queue.Queue[str] = queue.Queue()
    with opened_page(opened.put, WITH_TOKEN):
        given = opened.get(timeout=60)
        file = Path(unquote(urlsplit(given).path))
        assert "secret" not in given
        assert 'content="0;url=http://127.0.0.1:8000/?token=secret&amp;x=1"' in file.read_text(encoding="utf-8")
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()


async def test_the_page_is_behind_its_gate() -> None:
    run = run_manifest()
    run["metadata"] |= {"uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z"}
    app = local_app(MemoryTarget(run), None, "secret", OpenStreams())  # type: ignore[arg-type]  # of the protocol, what is used
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as browser:
        refused = await browser.get("/runs")
        assert (refused.status_code, refused.headers["content-security-policy"][:18]) == (401, "default-src 'self'")
        assert "<main" in refused.text
        shown = await browser.get("/runs", headers={"Cookie": "rl-ui-8000=secret"})
        assert (shown.status_code, 'href="/runs/default/sorting"' in shown.text) == (200, True)
