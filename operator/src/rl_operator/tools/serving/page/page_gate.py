"""In front of the page at /ui of the gateway: everything is read and done with the rights of the caller's token.

Browsers log in with the token that other callers send as a header (`page_login.py`). A reverse proxy that logs people
in itself sends `Authorization: Bearer TOKEN`, which takes precedence.
"""

import math
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.errors import OperatorError, UnauthenticatedError
from rl_operator.tools.serving.gate import STATUS, attended, read_body
from rl_operator.tools.serving.http_access import is_called_rightly
from rl_operator.tools.serving.page.page_login import LOGIN, LOGOUT, ROOT, PageLogin, SentToken, address_of, sent_token
from rl_operator.tools.serving.page.page_places import PagePlaces
from rl_operator.tools.serving.page.pages import Pages, key_of
from rl_operator.tools.serving.token_check import TokenCheck, TurnedAwayError
from rl_operator.tools.toolset import code_of
from rl_operator.ui.security import (
    NOT_OF_THIS_PAGE,
    SAFE_METHODS,
    SecurityHeaders,
    goes_on,
    is_followed_link,
    is_same_origin,
    own_address,
)
from rl_operator.ui.ui_context import STATIC_PATH

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
