"""What browsers may do with the page, and which of their requests are the page's own."""

from collections.abc import Mapping
from html import escape
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
NOT_OF_THIS_PAGE: Final = "The request does not come from this page: its Origin is not the Host that it was sent to."

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecurityHeaders:
    """An ASGI application around another, whose answers get HEADERS. Only what is below `static` may be kept."""

    def __init__(self, app: ASGIApp, static: str) -> None:
        self._app = app
        self._static = static

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                is_static = message["status"] < 400 and scope["path"].startswith(self._static)
                headers["Cache-Control"] = "no-cache" if is_static else "no-store"
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def is_loopback(headers: Headers) -> bool:
    """Whether `Host` names this machine. Another name may be an attacker's that resolves to it."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname in LOOPBACK
    except ValueError:
        return False


def is_same_origin(headers: Headers) -> bool:
    """Whether a form or script of this very page sent it: another page has another origin, which browsers tell."""
    origins = headers.getlist("origin")
    return len(origins) == 1 and bool(origins[0]) and _origin_host(origins[0]) == headers.get("host")


def _origin_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def cookie_name(name: str, headers: Headers) -> str:
    """Browsers send cookies to all ports of a host: servers at other ports have cookies of their own."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{name}-{port}" if port.isdecimal() else name


def cookie_of(headers: Headers, name: str) -> str:
    """Empty: there is none, or two, of which one is from another site of the same domain."""
    pairs = (part.partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    found = [value.strip().strip('"') for key, _, value in pairs if key.strip() == name]
    return found[0] if len(found) == 1 else ""


def is_followed_link(request: Request) -> bool:
    """Whether somebody followed a link on another site. Browsers send no SameSite=Strict cookie with that."""
    sent = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    return request.method == "GET" and all(request.headers.get(name) == value for name, value in sent.items())


def own_address(request: Request, without: str = "") -> str:
    """The path and query of a request, which cannot name another host; `without` that parameter."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = urlencode([(name, value) for name, value in pairs if name != without])
    path = "/" + quote(request.scope["path"].lstrip("/"))
    return f"{path}?{query}" if query else path


def goes_on(address: str, root: str = "") -> Response:
    """Leads there from a page of our own. After a redirect, a browser that came from another site sends no cookie.
    `root`: the path below which the page is served.
    """
    icon = f'<link rel="icon" href="{root}/static/icon.svg">'  # else browsers ask for one that is not there
    return HTMLResponse(
        f'<!doctype html>{icon}<meta http-equiv="refresh" content="0;url={escape(address)}"><title>…</title>'
    )
