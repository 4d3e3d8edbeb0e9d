"""What browsers are told, and which of their requests are the page's own."""

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rl_operator.ui.serving.security import (
    HEADERS,
    SecurityHeaders,
    cookie_name,
    cookie_of,
    goes_on,
    is_followed_link,
    is_loopback,
    is_same_origin,
    own_address,
)

FOLLOWED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def request(path: str, query: str = "", method: str = "GET", headers: dict[str, str] | None = None) -> Request:
    encoded = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return Request({"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": encoded})


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1:8000", True),
        ("localhost:8000", True),
        ("[::1]:8000", True),
        ("LOCALHOST", True),
        ("", False),
        ("[", False),
        ("127.0.0.1.attacker.com", False),
        ("localhost.attacker.com:8000", False),
        ("10.0.0.1", False),
        ("attacker.com@127.0.0.1.", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, is_here: bool) -> None:
    assert is_loopback(Headers({"host": host})) is is_here


@pytest.mark.parametrize(
    ("origins", "host", "is_own"),
    [
        (["http://127.0.0.1:8000"], "127.0.0.1:8000", True),
        (["https://rl.example.com"], "rl.example.com", True),
        (["http://127.0.0.1:8001"], "127.0.0.1:8000", False),
        (["https://rl.example.com.attacker.com"], "rl.example.com", False),
        (["null"], "127.0.0.1:8000", False),
        ([""], "", False),
        ([], "127.0.0.1:8000", False),
        (["http://["], "[", False),
        (["http://127.0.0.1:8000", "https://attacker.com"], "127.0.0.1:8000", False),
    ],
)
def test_a_request_of_the_page_has_its_host_as_origin(origins: list[str], host: str, is_own: bool) -> None:
    sent = [(b"host", host.encode()), *((b"origin", origin.encode()) for origin in origins)]
    assert is_same_origin(Headers(raw=sent)) is is_own


@pytest.mark.parametrize(
    ("cookies", "value"),
    [
        (["rl=a"], "a"),
        (['other={"a": 1}; rl="a/b=="; x'], "a/b=="),
        (["other=1", "rl=a"], "a"),
        (["rl=a; rl=b"], ""),
        (["rl=a", "rl=b"], ""),
        (["xrl=a"], ""),
        ([], ""),
    ],
)
def test_a_cookie_is_read_among_those_of_others(cookies: list[str], value: str) -> None:
    assert cookie_of(Headers(raw=[(b"cookie", each.encode()) for each in cookies]), "rl") == value


def test_servers_at_two_ports_have_cookies_of_their_own() -> None:
    hosts = ("127.0.0.1:8000", "127.0.0.1:8001", "[::1]:8000", "rl.example.com")
    names = [cookie_name("rl", Headers({"host": host})) for host in hosts]
    assert names == ["rl-8000", "rl-8001", "rl-8000", "rl"]


@pytest.mark.parametrize(
    ("path", "query", "address"),
    [
        ("/ui/runs", "", "/ui/runs"),
        ("/runs", "token=secret&phase=Failed", "/runs?phase=Failed"),
        ("//attacker.com/", "token=secret", "/attacker.com/"),
        ("/\\attacker.com", "", "/%5Cattacker.com"),
        ("/runs/a\r\nSet-Cookie: x", "", "/runs/a%0D%0ASet-Cookie%3A%20x"),
        ("/runs", "text=%0d%0aX:1&empty=", "/runs?text=%0D%0AX%3A1&empty="),
    ],
)
def test_an_address_stays_here_and_loses_its_token(path: str, query: str, address: str) -> None:
    assert own_address(request(path, query), without="token") == address


@pytest.mark.parametrize(
    ("method", "headers", "followed"),
    [
        ("GET", FOLLOWED, True),
        ("POST", FOLLOWED, False),
        ("GET", FOLLOWED | {"sec-fetch-site": "same-origin"}, False),
        ("GET", FOLLOWED | {"sec-fetch-dest": "iframe"}, False),
        ("GET", FOLLOWED | {"sec-fetch-mode": "no-cors"}, False),
        ("GET", {}, False),
    ],
)
def test_only_a_followed_link_goes_on(method: str, headers: dict[str, str], followed: bool) -> None:
    assert is_followed_link(request("/", "", method, headers)) is followed


def test_an_address_cannot_leave_the_page_that_goes_on() -> None:
    assert b'content="0;url=/a?b=&quot;&gt;&lt;script&gt;"' in goes_on('/a?b="><script>').body


async def test_only_what_is_static_is_kept() -> None:
    served = SecurityHeaders(PlainTextResponse("text", headers={"Cache-Control": "public"}), "/ui/static/")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://test") as client:
        kept = {path: (await client.get(path)).headers for path in ("/ui/static/a", "/static/a", "/ui/runs/static/")}
    assert [headers["cache-control"] for headers in kept.values()] == ["no-cache", "no-store", "no-store"]
    for headers in kept.values():
        assert {name: headers[name] for name in HEADERS} == HEADERS
