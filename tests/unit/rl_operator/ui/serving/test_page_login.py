"""Logging in and out: where the token goes, and where the browser goes."""

import pytest
from starlette.datastructures import Headers
from tests.unit.rl_operator.tools.serving.page_callers import ANN, HTML, OWN, browser_at, gateway_of, two_callers

from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.ui.serving.page_login import MAX_TOKEN, own_path, sent_token

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
