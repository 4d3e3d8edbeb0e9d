"""In front of the page at /ui of the gateway: everything is read and done with the rights of the caller's token.

Browsers log in with the token that other callers send as a header; it goes into a cookie that scripts cannot read, and
that no other site's request carries. A reverse proxy that logs people in itself sends `Authorization: Bearer TOKEN`,
which takes precedence.
"""

import math
import weakref
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.operator_errors import OperatorError, UnauthenticatedError
from rl_operator.targets.target import Target
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.caller_sessions import LocalSessions, Sessions, key_of
from rl_operator.tools.serving.gateway import Page
from rl_operator.tools.serving.tool_gate import (
    STATUS,
    TokenCheck,
    TurnedAwayError,
    attended,
    bearer_token,
    is_called_rightly,
    read_body,
)
from rl_operator.tools.toolset import code_of
from rl_operator.ui.live_runs import LiveRuns, Polls
from rl_operator.ui.serving.security import (
    NOT_OF_THIS_PAGE,
    SecurityHeaders,
    cookie_name,
    cookie_of,
    goes_on,
    is_followed_link,
    is_loopback,
    is_same_origin,
    own_address,
)
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import SAFE_METHODS, STATIC_PATH, UiContext, VisibleVersions, Visitor, make_templates

ROOT: Final = "/ui"
LOGIN: Final = f"{ROOT}/login"
LOGOUT: Final = f"{ROOT}/logout"
METHODS: Final = {LOGIN: ("GET", "HEAD", "POST"), LOGOUT: ("POST",)}
COOKIE: Final = "rl-token"
MAX_TOKEN: Final = 3_800
"""Browsers keep cookies of 4,096 bytes."""

NO_TOKEN: Final = f"That is not a token: a token has no spaces, and at most {MAX_TOKEN:,} characters."
NO_TLS: Final = (
    "This page came over plain HTTP, on which others can read your token. Open it with https://, or on this machine "
    "through kubectl port-forward."
)


@dataclass(frozen=True)
class SentToken:
    """`by_cookie`: after a login here; else in the header `Authorization`."""

    token: str = field(repr=False)
    by_cookie: bool


class PageLogin:
    """What LOGIN and LOGOUT answer. `on_cluster`: tokens are Kubernetes'."""

    def __init__(self, tokens: TokenCheck, context: UiContext, *, on_cluster: bool) -> None:
        self._tokens = tokens
        self._context = context
        self._on_cluster = on_cluster

    async def answer(self, request: Request, body: bytes) -> Response:
        """Raises TurnedAwayError, TargetUnreachableError."""
        path, wanted = request.scope["path"], own_path(request.query_params.get("next", ""))
        if request.method not in METHODS[path]:
            answer = self._context.notice("This address takes no such request.", 405)
            answer.headers["Allow"] = ", ".join(METHODS[path])
            return answer
        if path == LOGOUT:
            return _without_cookie(RedirectResponse(LOGIN, 303), request.headers)
        return await self._log_in(request, body, wanted) if request.method == "POST" else self._form(wanted)

    def again(self, request: Request, sent: SentToken, problem: str) -> Response:
        """For a token that is not right, or no longer."""
        if not sent.by_cookie:
            return self._context.notice(f"The header Authorization of this request is refused: {problem}", 401)
        wanted = own_path(own_address(request)) if request.method == "GET" else ""
        return _without_cookie(self._form(own_path(wanted), problem, 401), request.headers)

    async def _log_in(self, request: Request, body: bytes, wanted: str) -> Response:
        is_private = urlsplit(request.headers["origin"]).scheme == "https"
        if not is_private and not is_loopback(request.headers):
            return self._form(wanted, NO_TLS, 400)
        token = parse_qs(body.decode(errors="replace")).get("token", [""])[0].strip()
        if bearer_token(f"Bearer {token}") is None or len(token) > MAX_TOKEN:
            return self._form(wanted, NO_TOKEN, 400)
        try:
            await self._tokens.check(token, address_of(request))
        except UnauthenticatedError as error:
            return self._form(wanted, str(error), 401)
        answer = RedirectResponse(wanted, 303)
        name = cookie_name(COOKIE, request.headers)
        answer.set_cookie(name, token, path=ROOT, httponly=True, samesite="strict", secure=is_private)
        return answer

    def _form(self, wanted: str, problem: str = "", status: int = 200) -> Response:
        values = {"title": "Log in", "next": wanted, "problem": problem, "on_cluster": self._on_cluster}
        return self._context.page_of_nobody("login.html", values, status)


def _without_cookie(answer: Response, headers: Headers) -> Response:
    answer.delete_cookie(cookie_name(COOKIE, headers), path=ROOT, httponly=True, samesite="strict")
    return answer


def sent_token(headers: Headers) -> SentToken | None:
    """None: there is none that is spelled as one."""
    if (sent := bearer_token(headers.get("authorization", ""))) is not None:
        return SentToken(sent, by_cookie=False)
    kept = bearer_token(f"Bearer {cookie_of(headers, cookie_name(COOKIE, headers))}")
    return SentToken(kept, by_cookie=True) if kept is not None else None


def own_path(wanted: str) -> str:
    """Where to go after logging in: a path of the page, never another site."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return f"{ROOT}/runs"
    is_own = not parts.scheme and not parts.netloc and parts.path.startswith(f"{ROOT}/")
    leads_out = "\\" in wanted or ".." in parts.path or parts.path in METHODS
    return wanted if is_own and not leads_out else f"{ROOT}/runs"


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


class Pages:
    """The application: the visitor comes with the request's scope. `pinned`: only the context's namespace is shown."""

    def __init__(self, sessions: Sessions, *, pinned: bool, may_change: bool) -> None:
        self.may_change = may_change
        self.context = UiContext(lambda request: request.scope["visitor"], make_templates(), ROOT)
        self._sessions = sessions
        self._pinned = pinned
        self._polls = Polls()
        self._live: weakref.WeakValueDictionary[tuple[str, str | None], LiveRuns] = weakref.WeakValueDictionary()
        self._app = ui_app(self.context)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As a mounted application sees it."""
        path = scope["path"] if scope["path"] != ROOT else f"{ROOT}/"
        await self._app({**scope, "root_path": ROOT, "path": path}, receive, send)

    @contextmanager
    def visited_by(self, sent: SentToken) -> Iterator[Visitor]:
        """Their target is open inside the block. Raises UnauthenticatedError, TargetUnreachableError."""
        with self._sessions.context(sent.token) as context:
            namespace = context.namespace if self._pinned else None
            live_of = partial(self._live_of, sent.token)
            yield Visitor(
                context.target, live_of, namespace, self.may_change, context.target.caller, can_log_out=sent.by_cookie
            )

    def _live_of(self, token: str, namespace: str | None) -> LiveRuns:
        """Tabs of one caller share a poll. Each asks for their target again, so that it ends with their token."""
        key = key_of(token), namespace
        live = self._live.get(key) or LiveRuns(
            VisibleVersions(partial(self._opened, token), namespace), polls=self._polls
        )
        self._live[key] = live
        return live

    @contextmanager
    def _opened(self, token: str) -> Iterator[Target]:
        with self._sessions.context(token) as context:
            yield context.target


MOST_OF_CALLER: Final = 64
MOST: Final = 256
"""Half of the connections that are served: the other half is for the tools."""


class PagePlaces:
    """Requests in progress, by caller."""

    def __init__(self, most_of_caller: int = MOST_OF_CALLER, most: int = MOST) -> None:
        self._most_of_caller = most_of_caller
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Raises TurnedAwayError."""
        if self._taken[caller] >= self._most_of_caller:
            raise TurnedAwayError("busy", f"You have {self._most_of_caller} requests open: close some tabs.")
        if self._taken.total() >= self._most:
            raise TurnedAwayError("busy", f"The page has {self._most} requests open: try again in a few seconds.")
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


STATIC: Final = f"{ROOT}{STATIC_PATH}"
WRONG_HOST: Final = "This server does not allow this host name: start it with --allow-host."
NOT_CHANGED: Final = "This server changes nothing (--read-only)."


class PageGate:
    """An ASGI application: what is below /ui is the page, everything else is for `others`."""

    def __init__(
        self, pages: Pages, login: PageLogin, tokens: TokenCheck, hosts: Collection[str], others: ASGIApp
    ) -> None:
        self._pages = pages
        self._login = login
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in hosts)
        self._others = others
        self._places = PagePlaces()
        self._page = SecurityHeaders(self._answer, STATIC)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and (scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/"))
        await (self._page if is_page else self._others)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if answer := self._refused(request) or await self._served(request, receive, send):
                await answer(scope, receive, send)
        except ClientDisconnect:
            return
        except OperatorError as error:
            await self._in_words(error)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        if not is_called_rightly(request.headers.get("host", ""), self._hosts):
            return self._pages.context.notice(WRONG_HOST, 403)
        if request.method in SAFE_METHODS:
            return None
        if not is_same_origin(request.headers):
            return self._pages.context.notice(NOT_OF_THIS_PAGE, 403)
        is_change = request.scope["path"] not in (LOGIN, LOGOUT)
        return self._pages.context.notice(NOT_CHANGED, 403) if is_change and not self._pages.may_change else None

    async def _served(self, request: Request, receive: Receive, send: Send) -> Response | None:
        """None: it is answered already. Raises OperatorErrors before anything of an answer is sent."""
        path = request.scope["path"]
        if path in (LOGIN, LOGOUT):
            with self._places.taken("login"):
                return await self._login.answer(request, await read_body(request))
        if path.startswith(STATIC):
            await self._pages.serve(request.scope, receive, send)
            return None
        sent = sent_token(request.headers)
        return await self._shown(request, sent, receive, send) if sent else self._to_login(request)

    async def _shown(self, request: Request, sent: SentToken, receive: Receive, send: Send) -> Response | None:
        try:
            await self._tokens.check(sent.token, address_of(request))
            with self._places.taken(key_of(sent.token)), self._pages.visited_by(sent) as visitor:
                body, seen = await read_body(request), {**request.scope, "visitor": visitor}
                work = attended(lambda heard: self._pages.serve(seen, heard, send), body, receive)
                await self._tokens.while_right(sent.token, address_of(request), work)
        except UnauthenticatedError as error:
            return self._login.again(request, sent, str(error))
        return None

    def _to_login(self, request: Request) -> Response:
        """A part of a page, or a stream, is not logged in: the page itself is, when it is loaded again."""
        if is_followed_link(request):
            return goes_on(own_address(request), ROOT)
        if request.method not in SAFE_METHODS or "text/html" not in request.headers.get("accept", ""):
            return self._pages.context.notice("Log in first.", 401)
        return RedirectResponse(f"{LOGIN}?next={quote(own_address(request), safe='')}", 303)

    def _in_words(self, error: OperatorError) -> Response:
        turned_away = error if isinstance(error, TurnedAwayError) else None
        answer = self._pages.context.notice(str(error), STATUS[turned_away.code if turned_away else code_of(error)])
        if turned_away and turned_away.code == "busy":
            answer.headers["Retry-After"] = str(math.ceil(turned_away.again))
        return answer


def page_at(sessions: Sessions, calls: Calls, hosts: Collection[str], *, pinned: bool, may_change: bool) -> Page:
    """The page, for `gateway.build_app`."""

    def page(others: ASGIApp, tokens: TokenCheck) -> ASGIApp:
        pages = Pages(sessions, pinned=pinned, may_change=may_change)
        login = PageLogin(tokens, pages.context, on_cluster=not isinstance(sessions, LocalSessions))
        calls.when_ending(pages.context.streams.end)
        return PageGate(pages, login, tokens, hosts, others)

    return page
