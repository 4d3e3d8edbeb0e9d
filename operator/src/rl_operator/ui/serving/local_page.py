"""The page on loopback: who may look, from which host name, and how the browser learns the address.

Every user of the machine reaches loopback: so the first address has a token, which becomes a cookie.
"""

import contextlib
import hmac
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Target
from rl_operator.ui.live_runs import LiveRuns, OpenStreams
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


GRACE_SECONDS = 1


class LocalServer(uvicorn.Server):
    """`ending` ends what would go on forever."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        logging.getLogger("uvicorn.error").disabled = True  # that a request was cut off is no news after Ctrl-C
        self._ending()
        super().handle_exit(sig, frame)


def listen(port: int) -> socket.socket:
    """Port 0: the kernel chooses. Raises RefusedError."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise RefusedError(f"cannot listen on port {port}: {why}; choose another one with --port") from error


@contextlib.contextmanager
def opened_page(browser: Callable[[str], object], address: str) -> Iterator[None]:
    """The browser is given a file that leads to the address: every user of the machine sees its command line, and the
    address has the token. The file is there, for this user alone, inside the block.
    """
    with tempfile.TemporaryDirectory(prefix="rlctl-ui-") as folder:
        file = Path(folder) / "runs.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}">', "utf-8")
        # In a thread: some browsers only return when they are closed.
        threading.Thread(target=browser, args=(file.as_uri(),), daemon=True).start()
        yield


def serve(target: Target, namespace: str | None, listener: socket.socket, token: str) -> None:
    """Until Ctrl-C or SIGTERM. `namespace` None: runs of all."""
    streams = OpenStreams()
    config = uvicorn.Config(
        local_app(target, namespace, token, streams),
        loop="asyncio",  # another one, if it is installed, takes 3 MiB more
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again after handling it
    with contextlib.suppress(KeyboardInterrupt):
        LocalServer(config, streams.end).run(sockets=[listener])


def local_app(target: Target, namespace: str | None, token: str, streams: OpenStreams) -> ASGIApp:
    live: weakref.WeakValueDictionary[str | None, LiveRuns] = weakref.WeakValueDictionary()

    def live_of(shown: str | None) -> LiveRuns:
        return live.setdefault(shown, LiveRuns(VisibleVersions(lambda: contextlib.nullcontext(target), shown)))

    visitor = Visitor(target, live_of, namespace, variables=os.environ)
    context = UiContext(lambda _request: visitor, make_templates(), streams=streams)
    return SecurityHeaders(LocalGate(ui_app(context), token, context.notice), STATIC_PATH)
