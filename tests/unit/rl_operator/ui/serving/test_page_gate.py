"""The page beside the tools: whose rights it uses, who is kept out, and for how long a stream goes on."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message
from tests.unit.rl_operator.tools.serving.page_callers import (
    ADDRESS,
    ANN,
    BEN,
    HTML,
    OWN,
    MadeSessions,
    browser_at,
    gateway_of,
    target_of,
    two_callers,
)
from tests.unit.rl_operator.ui.page_streams import END_SECONDS, PageStream

from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.tools.serving.tool_gate import TurnedAwayError
from rl_operator.ui.serving.page_gate import MAX_TOKEN, MOST_OF_CALLER, PagePlaces, own_path, sent_token
from rl_operator.ui.serving.security import HEADERS

BEARER = ("authorization", f"Bearer {ANN}")
COOKIE = ("cookie", "rl-token-8080=of-the-cookie")


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("/ui/runs?phase=Failed", "/ui/runs?phase=Failed"),
        ("/ui/runs/a/b", "/ui/runs/a/b"),
        ("", "/ui/runs"),
        ("https://attacker.com/ui/", "/ui/runs"),
        ("//attacker.com/ui/", "/ui/runs"),
        ("/ui/\\attacker.com", "/ui/runs"),
        ("/\\attacker.com/ui/", "/ui/runs"),
        ("javascript:alert(1)", "/ui/runs"),
        ("/uix", "/ui/runs"),
        ("/mcp", "/ui/runs"),
        ("/ui/../mcp", "/ui/runs"),
        ("/ui/login?next=/ui/login", "/ui/runs"),
        ("/ui/logout", "/ui/runs"),
        ("http://[", "/ui/runs"),
    ],
)
def test_only_a_path_of_the_page_is_gone_to(wanted: str, path: str) -> None:
    assert own_path(wanted) == path


@pytest.mark.parametrize(
    ("sent", "token", "by_cookie"),
    [
        ([BEARER], ANN, False),
        ([BEARER, COOKIE], ANN, False),
        ([("authorization", "Basic dXNlcjpwYXNz"), COOKIE], "of-the-cookie", True),
        ([COOKIE], "of-the-cookie", True),
    ],
    ids=["header", "the header first", "a header of another kind", "cookie"],
)
def test_a_token_is_sent_as(sent: list[tuple[str, str]], token: str, by_cookie: bool) -> None:
    found = sent_token(Headers(raw=[(name.encode(), value.encode()) for name, value in [("host", "a:8080"), *sent]]))
    assert found is not None
    assert (found.token, found.by_cookie) == (token, by_cookie)
    assert token not in repr(found)


@pytest.mark.parametrize(
    "cookie", ["", "rl-token-8080=", "rl-token-8080=a b", "rl-token=a", "rl-token-8080=a;rl-token-8080=b"]
)
def test_what_is_no_token_is_none(cookie: str) -> None:
    assert sent_token(Headers({"host": "127.0.0.1:8080", "cookie": cookie})) is None


@pytest.mark.parametrize(
    ("address", "cookie"),
    [
        ("http://127.0.0.1:8080", "rl-token-8080=ann-token; HttpOnly; Path=/ui; SameSite=strict"),
        ("https://rl.example.com", "rl-token=ann-token; HttpOnly; Path=/ui; SameSite=strict; Secure"),
    ],
)
async def test_the_token_becomes_a_cookie(address: str, cookie: str) -> None:
    async with browser_at(gateway_of(two_callers()), address) as browser:
        form = await browser.get("/ui/login?next=/ui/runs%3Fphase=Failed")
        assert 'action="/ui/login?next=/ui/runs%3Fphase%3DFailed"' in form.text
        answer = await browser.post(
            "/ui/login?next=/ui/runs?phase=Failed", data={"token": f" {ANN}\n"}, headers={"Origin": address}
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/runs?phase=Failed")
        assert answer.headers["set-cookie"] == cookie
        shown = await browser.get("/ui/runs")
        assert ("anns-run" in shown.text, "memory · ann" in shown.text, "Log out" in shown.text) == (True, True, True)


async def test_logging_out_forgets_the_cookie() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        await browser.post("/ui/login", data={"token": ANN}, headers=OWN)
        assert (await browser.get("/ui/logout")).status_code == 405
        assert (await browser.post("/ui/logout")).status_code == 403  # of another site
        assert "anns-run" in (await browser.get("/ui/runs")).text
        answer = await browser.post("/ui/logout", headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        assert (await browser.get("/ui/runs", headers=HTML)).headers["location"] == "/ui/login?next=%2Fui%2Fruns"


@pytest.mark.parametrize(
    ("address", "token", "status", "said"),
    [
        ("http://127.0.0.1:8080", "wrong-token", 401, "does not know the token, or it has expired"),
        ("http://127.0.0.1:8080", "", 400, "That is not a token"),
        ("http://127.0.0.1:8080", "a b", 400, "That is not a token"),
        ("http://127.0.0.1:8080", "x\r\nSet-Cookie: a=b", 400, "That is not a token"),
        ("http://127.0.0.1:8080", "a" * (MAX_TOKEN + 1), 400, "at most 3,800 characters"),
        ("http://10.0.0.1:8080", ANN, 400, "This page came over plain HTTP"),
        ("http://127.0.0.1:8080", "a" * 300_000, 413, "the request&#39;s body is larger"),
    ],
    ids=["wrong", "empty", "two words", "two lines", "long", "plain HTTP", "huge"],
)
async def test_a_login_that_fails_says_why(address: str, token: str, status: int, said: str) -> None:
    async with browser_at(gateway_of(two_callers()), address) as browser:
        answer = await browser.post("/ui/login?next=/ui/runs", data={"token": token}, headers={"Origin": address})
    assert (answer.status_code, said in answer.text) == (status, True)
    assert "set-cookie" not in answer.headers
    assert not token or token not in answer.text


async def test_an_api_server_that_does_not_answer_is_named() -> None:
    sessions = two_callers()
    sessions.trusts, sessions.failure = False, TargetUnreachableError("the API server does not answer")
    async with browser_at(gateway_of(sessions)) as browser:
        answer = await browser.post("/ui/login", data={"token": ANN}, headers=OWN)
    assert (answer.status_code, "the API server does not answer" in answer.text) == (502, True)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_refused(method: str) -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        answer = await browser.request(method, "/ui/login", headers=OWN)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_guessing_is_slowed_down() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        codes = [(await browser.post("/ui/login", data={"token": "guess"}, headers=OWN)).status_code for _ in range(21)]
        answer = await browser.post("/ui/login", data={"token": "guess"}, headers=OWN)
    assert codes == [401] * 20 + [429]
    assert 1 <= int(answer.headers["retry-after"]) <= 60


AS_ANN = {"Authorization": f"Bearer {ANN}"}
FOLLOWED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FOREIGN = {"Origin": "https://attacker.com"}
STREAMED = {"Host": "127.0.0.1:8080", **AS_ANN}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(END_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


async def test_everyone_sees_what_their_token_shows() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        for token, own, other in (
            (ANN, "anns-run", "bens-run"),
            (BEN, "bens-run", "anns-run"),
            (ANN, "anns-run", "bens-run"),
        ):
            page = (await browser.get("/ui/runs", headers={"Authorization": f"Bearer {token}"})).text
            assert (own in page, other in page, token in page) == (True, False, False)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "said"),
    [
        pytest.param("GET", "/ui", AS_ANN, 303, "", id="root"),
        pytest.param("GET", "/ui/", AS_ANN, 303, "", id="root with a slash"),
        pytest.param("HEAD", "/ui/runs", AS_ANN, 200, "", id="head"),
        pytest.param("GET", "/ui/nothing", AS_ANN, 404, "There is no such page.", id="no page"),
        pytest.param("GET", f"{ADDRESS}/ui//runs", AS_ANN, 404, "There is no such page.", id="two slashes"),
        pytest.param("GET", "/ui/runs/default%2F..%2F..", AS_ANN, 404, "", id="encoded slashes"),
        pytest.param("GET", "/ui/static/%2e%2e/ui_app.py", {}, 404, "There is no such page.", id="out of static"),
        pytest.param("GET", "/ui/static/app.css", {}, 200, "", id="the look needs no token"),
        pytest.param("GET", "/uix", AS_ANN, 404, '"code":"not_found"', id="not the page"),
        pytest.param("GET", "/UI/runs", AS_ANN, 404, '"code":"not_found"', id="not the page either"),
        pytest.param("GET", "/ui/runs", HTML, 303, "", id="nobody"),
        pytest.param("GET", "/ui/runs?part=rows", {}, 401, "Log in first.", id="a script of nobody"),
        pytest.param("GET", "/ui/live", {"Accept": "text/event-stream"}, 401, "Log in first.", id="a stream of nobody"),
        pytest.param("POST", "/ui/runs/a/b/stop", HTML | OWN, 401, "Log in first.", id="a form of nobody"),
        pytest.param("GET", "/ui/runs", {"Authorization": "Bearer wrong"}, 401, "Authorization", id="wrong header"),
        pytest.param("GET", "/ui/runs", {"Cookie": "rl-token-8080=wrong"}, 401, "or it has expired", id="wrong cookie"),
        pytest.param("POST", "/ui/runs", AS_ANN, 403, "does not come from this page", id="a form of nowhere"),
        pytest.param("POST", "/ui/runs", AS_ANN | FOREIGN, 403, "does not come", id="CSRF"),
        pytest.param("POST", "/ui/runs", AS_ANN | {"Origin": "null"}, 403, "does not come", id="of a sandbox"),
        pytest.param("POST", "/ui/login", FOREIGN, 403, "does not come", id="login CSRF"),
        pytest.param("POST", "/ui/login", {}, 403, "does not come", id="login from nowhere"),
        pytest.param("OPTIONS", "/ui/runs", FOREIGN, 403, "does not come", id="preflight"),
        pytest.param("GET", "/ui/runs", AS_ANN | {"Host": "rebound.attacker.com"}, 403, "--allow-host", id="rebound"),
        pytest.param("GET", "/ui/login", {"Host": "rebound.attacker.com"}, 403, "--allow-host", id="rebound login"),
        pytest.param("GET", "/ui/runs", AS_ANN | {"Host": "rl.example.com"}, 200, "anns-run", id="its public name"),
    ],
)  # fmt: skip
async def test_requests(method: str, path: str, headers: dict[str, str], status: int, said: str) -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        answer = await browser.request(method, path, headers=headers)
    assert (answer.status_code, said in answer.text) == (status, True)
    if "not_found" not in answer.text:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert ANN not in answer.text


async def test_a_cookie_that_is_no_longer_right_leads_to_the_form_and_is_forgotten() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        answer = await browser.get("/ui/runs?phase=Failed", headers=HTML | {"Cookie": "rl-token-8080=wrong"})
    assert 'action="/ui/login?next=/ui/runs%3Fphase%3DFailed"' in answer.text
    assert answer.headers["set-cookie"].startswith('rl-token-8080=""; ')
    assert "Max-Age=0" in answer.headers["set-cookie"]


async def test_a_link_from_another_site_is_followed_from_here() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        answer = await browser.get("/ui/runs/default/a", headers=HTML | FOLLOWED)
    assert (answer.status_code, 'content="0;url=/ui/runs/default/a"' in answer.text) == (200, True)


async def test_the_tools_are_where_they_were() -> None:
    async with browser_at(gateway_of(two_callers())) as browser:
        listed = await browser.get("/environments", headers=AS_ANN)
        assert (listed.status_code, listed.json()) == (200, [{"name": "gsm8k"}, {"name": "sorting"}])
        by_cookie = await browser.get("/environments", headers={"Cookie": f"rl-token-8080={ANN}"})
        assert by_cookie.status_code == 401


async def test_a_server_that_only_reads_changes_nothing() -> None:
    async with browser_at(gateway_of(two_callers(), read_only=True)) as browser:
        answer = await browser.post("/ui/runs/default/anns-run/stop", headers=AS_ANN | OWN)
        assert (answer.status_code, "changes nothing (--read-only)" in answer.text) == (403, True)
        assert (await browser.post("/ui/login", data={"token": ANN}, headers=OWN)).status_code == 303


async def test_a_pinned_server_shows_one_namespace() -> None:
    async with browser_at(gateway_of(two_callers(), pinned=True)) as browser:
        for path in (
            "/ui/runs?namespace=team",
            "/ui/runs/team/x",
            "/ui/live?namespace=team",
            "/ui/compare?run=team/x&run=y",
        ):
            refused = await browser.get(path, headers=AS_ANN)
            assert (refused.status_code, "default alone, not team" in refused.text) == (403, True), path


async def test_an_api_server_that_does_not_answer_is_a_page() -> None:
    sessions = two_callers()
    sessions.trusts, sessions.failure = False, TargetUnreachableError("no answer")
    async with browser_at(gateway_of(sessions)) as browser:
        answer = await browser.get("/ui/runs", headers=AS_ANN)
    assert (answer.status_code, "no answer" in answer.text, "<main" in answer.text) == (502, True, True)


# --- streams ---------------------------------------------------------------------------------------------------------
async def test_a_stream_keeps_its_session_open_and_leaves_it() -> None:
    sessions = two_callers()
    async with PageStream(gateway_of(sessions), "/ui/live", STREAMED) as stream:
        assert (stream.status, await stream.chunk()) == (200, ": connected\n\n")
        assert sessions.open >= 1
    await until(lambda: sessions.open == 0)


async def test_a_stream_ends_when_its_token_is_revoked() -> None:
    sessions = MadeSessions(ann=target_of("ann", "a"))
    async with PageStream(gateway_of(sessions), "/ui/live", STREAMED) as stream:
        await stream.chunk()
        sessions.targets.clear()
        chunk = await stream.chunk()
        assert chunk.startswith("event: over\n")
        assert "it has expired" in chunk
        assert await stream.chunk() == ""


async def test_one_caller_cannot_take_all_places() -> None:
    app = gateway_of(two_callers())
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(PageStream(app, "/ui/live", STREAMED)) for _ in range(MOST_OF_CALLER)
        ]
        assert {stream.status for stream in streams} == {200}
        browser = await stack.enter_async_context(browser_at(app))
        refused = await browser.get("/ui/runs", headers=AS_ANN)
        assert (refused.status_code, "close some tabs" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) > 0
        assert (await browser.get("/ui/runs", headers={"Authorization": f"Bearer {BEN}"})).status_code == 200
        await streams[0].__aexit__(None, None, None)
        assert (await browser.get("/ui/runs", headers=AS_ANN)).status_code == 200


async def test_the_tabs_of_a_caller_share_a_poll() -> None:
    sessions = two_callers()
    asked = []

    def versions(namespace: str | None) -> dict[tuple[str, str], str]:
        asked.append(namespace)
        return {}

    sessions.targets[ANN].run_versions = versions  # type: ignore[method-assign]  # counts
    app = gateway_of(sessions)
    async with AsyncExitStack() as stack:
        for _ in range(10):
            stream = await stack.enter_async_context(PageStream(app, "/ui/live", STREAMED))
            await stream.chunk()
        await until(lambda: len(asked) >= 1)
    assert asked == [None]


@pytest.mark.parametrize("path", ["/ui/login", "/ui/runs/default/anns-run/stop"])
async def test_a_slow_body_is_not_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_operator.tools.serving.tool_gate.BODY_SECONDS", 0.01)
    sent = await asked_slowly(gateway_of(two_callers()), path)
    assert (sent[0]["status"], b"did not come within" in sent[1]["body"]) == (400, True)


async def asked_slowly(app: ASGIApp, path: str) -> list[Message]:
    sent: list[Message] = []
    headers = [
        (b"host", b"127.0.0.1:8080"),
        (b"origin", ADDRESS.encode()),
        (b"authorization", AS_ANN["Authorization"].encode()),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "client": ("a", 1),
    }

    async def receive() -> Message:
        if not sent:
            await asyncio.sleep(END_SECONDS)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), END_SECONDS)
    return sent


def test_places_are_counted_by_caller_and_in_all() -> None:
    places = PagePlaces(most_of_caller=2, most=3)
    with places.taken("ann"), places.taken("ann"):
        with pytest.raises(TurnedAwayError, match="You have 2 requests open"), places.taken("ann"):
            pass
        refused = pytest.raises(TurnedAwayError, match="The page has 3 requests open")
        with places.taken("ben"), refused, places.taken("ben"):
            pass
    with places.taken("ben"), places.taken("ben"):
        pass


def test_a_place_is_given_back_after_a_failure() -> None:
    places = PagePlaces(most_of_caller=1, most=1)
    for _ in range(2):
        with pytest.raises(KeyError), places.taken("ann"):
            raise KeyError
