"""In front of every page of a local server: who may look, and from which host name.

The address is on loopback, which every user of the machine reaches: so the first address has a token, which becomes a
cookie.
"""

import hmac
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.ui.security import (
    NOT_OF_THIS_PAGE,
    SAFE_METHODS,
    cookie_name,
    cookie_of,
    goes_on,
    is_followed_link,
    is_loopback,
    is_same_origin,
    own_address,
)
from rl_operator.ui.ui_context import STATIC_PATH

COOKIE: Final = "rl-ui"
TOKEN_PARAMETER: Final = "token"  # noqa: S105 -- a name

Notice = Callable[[str, int], Response]
"""A page with a sentence, and its status."""


class LocalGate:
    """An ASGI application around another, for one user of this machine."""

    def __init__(self, app: ASGIApp, token: str, notice: Notice) -> None:
        self._app = app
        self._token = token
        self._notice = notice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(Request(scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """None: let it pass."""
        headers = request.headers
        if not is_loopback(headers):
            return self._notice("This page is served to this machine only, at 127.0.0.1.", 403)
        if request.method not in SAFE_METHODS and not is_same_origin(headers):
            return self._notice(NOT_OF_THIS_PAGE, 403)
        if given := request.query_params.get(TOKEN_PARAMETER):
            return self._admitted(request) if self._is_right(given) else self._refused()
        if request.url.path.startswith(STATIC_PATH) or self._is_right(cookie_of(headers, cookie_name(COOKIE, headers))):
            return None
        return goes_on(own_address(request)) if is_followed_link(request) else self._refused()

    def _admitted(self, request: Request) -> Response:
        """The token leaves the address: it would stay in the browser's history."""
        answer = goes_on(own_address(request, without=TOKEN_PARAMETER))
        answer.set_cookie(cookie_name(COOKIE, request.headers), self._token, httponly=True, samesite="strict")
        return answer

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _refused(self) -> Response:
        return self._notice("Open the address that `rlctl ui` printed: it has a token that this one lacks.", 401)
