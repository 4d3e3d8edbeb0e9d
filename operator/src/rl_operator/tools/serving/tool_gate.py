"""In front of every route: caller, host name and body size are checked, with a limit on how often somebody may guess a
token. And a call ends when its caller disconnects.
"""

import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import anyio
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_operator.operator_errors import OperatorError, UnauthenticatedError
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.caller_sessions import BEARER_SPELLING, Sessions
from rl_operator.tools.toolset import ErrorCode, Outcome, code_of, failed

MOST_WRONG: Final = 20
WINDOW_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 4_096


class WrongTokens:
    """By address, in windows that begin with the first wrong token."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def seconds_to_wait(self, address: str) -> float:
        """0: its next unknown token may be tried."""
        began, wrong = self._window(address)
        return began + WINDOW_SECONDS - self._now() if wrong >= MOST_WRONG else 0.0

    def note(self, address: str) -> None:
        began, wrong = self._window(address)
        self._windows[address] = (began, wrong + 1)
        self._windows.move_to_end(address)
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def _window(self, address: str) -> tuple[float, int]:
        now = self._now()
        began, wrong = self._windows.get(address, (now, 0))
        return (began, wrong) if now < began + WINDOW_SECONDS else (now, 0)


BUSY_SECONDS: Final = 5.0
RECHECK_SECONDS: Final = 10.0
"""With TRUSTED_SECONDS: an answer that goes on ends within a minute of its token."""


class TurnedAwayError(OperatorError):
    """The request is rejected at the gate."""

    def __init__(self, code: ErrorCode, sentence: str, again: float = BUSY_SECONDS) -> None:
        super().__init__(sentence)
        self.code = code
        self.again = again


class TokenCheck:
    """Asks the API server once in a while; wrong tokens are counted by the address that they come from."""

    def __init__(self, sessions: Sessions, calls: Calls, recheck_seconds: float = RECHECK_SECONDS) -> None:
        self._sessions = sessions
        self._calls = calls
        self._recheck_seconds = recheck_seconds
        self._wrong_tokens = WrongTokens()

    async def check(self, token: str, address: str) -> None:
        """Raises UnauthenticatedError. Callers whose tokens were right before may share an address with one that
        guesses, and notice nothing.
        """
        if self._sessions.knows(token):
            return
        seconds = self._wrong_tokens.seconds_to_wait(address)
        if seconds and not self._sessions.has_met(token):
            hint = f"too many wrong tokens came from {address}: correct the token, and try again in {seconds:.0f} s"
            raise TurnedAwayError("busy", hint, again=seconds)
        try:
            await self._calls.in_thread(lambda: _introduce(self._sessions, token))
        except UnauthenticatedError:
            self._wrong_tokens.note(address)
            raise

    async def while_right(self, token: str, address: str, work: Coroutine[object, object, None]) -> None:
        """Await `work`, or end it when the token has been revoked or has expired."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_wrong, token, address, group.cancel_scope)
            await work
            group.cancel_scope.cancel()

    async def _until_wrong(self, token: str, address: str, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._recheck_seconds)
            try:
                await self.check(token, address)
            except UnauthenticatedError:
                scope.cancel()
                return
            except OperatorError:  # busy, or no answer: nothing is known against the token
                continue


def _introduce(sessions: Sessions, token: str) -> None:
    with sessions.context(token):
        pass


MAX_BODY: Final = 256 * 1024
BODY_SECONDS: Final = 10.0
TOO_LARGE: Final = f"the request's body is larger than the {MAX_BODY} bytes that are taken"

MCP_PATH: Final = "/mcp"
PROBE_PATH: Final = "/healthz"
AGENT_HEADER: Final = "X-RL-Agent"
NAMESPACE_HEADER: Final = "X-RL-Namespace"
MAX_AGENT: Final = 100
INVALID_REQUEST: Final = -32600
"""JSON-RPC's code."""
MAX_SHOWN: Final = 100
_NAMESPACE: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

STATUS: Final[dict[ErrorCode | None, int]] = {
    None: 200,
    "refused": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "busy": 429,
    "internal": 500,
    "unreachable": 502,
    "timeout": 504,
}


@dataclass(frozen=True)
class ToolCaller:
    """The result of the gate's checks; stored in the request's state."""

    token: str = field(repr=False)
    agent: str
    namespace: str
    """Empty: the server's usual one."""


def json_response(answer: object, code: ErrorCode | None, again: float = BUSY_SECONDS) -> Response:
    """`again`: after how many seconds a busy server may be called again."""
    headers = {"WWW-Authenticate": "Bearer"} if code == "unauthenticated" else {}
    headers |= {"Retry-After": str(math.ceil(again))} if code == "busy" else {}
    content = to_json(answer, inf_nan_mode="null")
    return Response(content, STATUS[code], headers, media_type="application/json")


def _as_mcp(outcome: Outcome) -> object:
    """A JSON-RPC error, which MCP clients show; for other responses they show only the status."""
    error = {"code": INVALID_REQUEST, "message": outcome.answer["error"], "data": outcome.answer}
    return {"jsonrpc": "2.0", "id": None, "error": error}


_BEARER: Final = re.compile(f"bearer +({BEARER_SPELLING}) *", re.IGNORECASE)

_PRIVATE_SUFFIXES: Final = (".svc", ".svc.cluster.local", ".localhost")
"""Names that no public name server resolves."""


def bearer_token(authorization: str) -> str | None:
    """From an `Authorization` header, as RFC 6750 defines it."""
    found = _BEARER.fullmatch(authorization)
    return found[1] if found else None


def is_called_rightly(host: str, allowed: Collection[str]) -> bool:
    """Whether a `Host` header cannot be the result of DNS rebinding: a page on an attacker's public domain, whose name
    then resolves to our address, could call us. Addresses, names without a dot and names inside a cluster are never
    public domains; others are `allowed` by name.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return bool(name) and (name in allowed or "." not in name or name.endswith(_PRIVATE_SUFFIXES) or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class ToolGate:
    """An ASGI application around another. Reads the whole body, so that the inner one never waits for it."""

    def __init__(self, app: ASGIApp, tokens: TokenCheck, hosts: Collection[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == PROBE_PATH:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            request.state.caller = await self._admitted(request)
            body = await read_body(request)
        except ClientDisconnect:
            return
        except OperatorError as error:
            outcome = failed(error.code if isinstance(error, TurnedAwayError) else code_of(error), str(error))
            answer = _as_mcp(outcome) if scope["path"] == MCP_PATH else outcome.answer
            again = error.again if isinstance(error, TurnedAwayError) else BUSY_SECONDS
            await json_response(answer, outcome.code, again)(scope, receive, send)
        else:
            await attended(lambda heard: self._app(scope, heard, send), body, receive)

    async def _admitted(self, request: Request) -> ToolCaller:
        """Raises OperatorErrors."""
        _refuse_strange_address(request.headers, self._hosts)
        token = bearer_token(request.headers.get("authorization", ""))
        if token is None:
            raise TurnedAwayError(
                "unauthenticated", "missing bearer token: send the header Authorization: Bearer TOKEN"
            )
        await self._tokens.check(token, request.client.host if request.client else "")
        namespace = request.headers.get(NAMESPACE_HEADER, "")
        if len(request.headers.getlist(NAMESPACE_HEADER)) > 1:
            raise TurnedAwayError("refused", f"the header {NAMESPACE_HEADER} is there twice: send it once")
        if namespace and not _NAMESPACE.fullmatch(namespace):
            raise TurnedAwayError("refused", f"the header {NAMESPACE_HEADER} is not a namespace name")
        return ToolCaller(token, request.headers.get(AGENT_HEADER, "")[:MAX_AGENT], namespace)


def _refuse_strange_address(headers: Headers, hosts: Collection[str]) -> None:
    host = headers.get("host", "")
    if not is_called_rightly(host, hosts):
        hint = "call it by its address, or start it with --allow-host"
        raise TurnedAwayError("forbidden", f"this server does not allow the host name {host[:MAX_SHOWN]!r}: {hint}")
    if "origin" in headers:
        raise TurnedAwayError("forbidden", "web pages may not call this server: send no Origin header")


async def read_body(request: Request) -> bytes:
    """Raises TurnedAwayError if it is too large or too slow, ClientDisconnect."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > MAX_BODY:
        raise TurnedAwayError("too_large", TOO_LARGE)
    read = bytearray()
    with anyio.move_on_after(BODY_SECONDS):
        async for chunk in request.stream():
            read += chunk
            if len(read) > MAX_BODY:
                raise TurnedAwayError("too_large", TOO_LARGE)
        return bytes(read)
    raise TurnedAwayError("refused", f"the request's body did not come within {BODY_SECONDS:.0f} s")


async def attended(answer: Callable[[Receive], Awaitable[None]], body: bytes, receive: Receive) -> None:
    """Cancel the call when the caller disconnects."""
    unread = [body]

    async def heard() -> Message:
        while not unread:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await answer(heard)
        group.cancel_scope.cancel()
