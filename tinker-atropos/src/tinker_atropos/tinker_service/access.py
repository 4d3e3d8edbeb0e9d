"""Who may ask, and when somebody last did: an ASGI layer before the routes."""

import hmac
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tinker_atropos.serving import json_response

KEY_PREFIX = "tml-"  # the SDK refuses other keys


class Gate:
    """Lets requests with the key pass, and remembers when. `open_path` needs no key and counts as nobody's request."""

    def __init__(self, app: ASGIApp, key: str, open_path: str) -> None:
        self._app = app
        self._key = key.encode()
        self._open_path = open_path
        self._under_way = 0
        self._last_request = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._under_way else time.monotonic() - self._last_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == self._open_path:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if not hmac.compare_digest(request.headers.get("x-api-key", "").encode(), self._key):
            refusal = "wrong or missing API key: set TINKER_API_KEY to the key this Tinker service was started with"
            await json_response({"detail": refusal}, 401)(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            self._last_request = time.monotonic()
