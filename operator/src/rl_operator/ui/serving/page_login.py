"""Logging in at the page: the token goes into a cookie that scripts cannot read, and that no other site's request
carries.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rl_operator.operator_errors import UnauthenticatedError
from rl_operator.tools.serving.http_access import bearer_token
from rl_operator.tools.serving.token_check import TokenCheck
from rl_operator.ui.serving.security import cookie_name, cookie_of, is_loopback, own_address
from rl_operator.ui.ui_context import UiContext

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
