"""Authentication, body limits, and the time of the last request: an ASGI layer in front of the routes."""

import hmac
import time
from collections.abc import Callable, Collection

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tinker_service.service_errors import RequestError
from tinker_service.service_http import json_response

KEY_PREFIX = "tml-"  # the SDK refuses other keys
MAX_BODY_BYTES = 32 * 2**20  # the SDK cuts its requests at 5 MB; one sequence can be longer

Observe = Callable[[Scope, int], None]


class KeyGate:
    """Passes requests that carry the key, and records when.

    `probes` need no key and do not count as requests; paths under `signed_prefix` carry their own signature.
    `observe` is called for every answer, with the request's scope (with the route's endpoint) and the HTTP status.
    """

    def __init__(
        self, app: ASGIApp, key: str, *, probes: Collection[str], signed_prefix: str, observe: Observe
    ) -> None:
        self._app = app
        self._key = key.encode()
        self._probes = probes
        self._signed_prefix = signed_prefix
        self._observe = observe
        self._under_way = 0
        self._last_request = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._under_way else time.monotonic() - self._last_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._probes:
            await self._app(scope, receive, send)
            return
        observed = self._observed(scope, send)
        if not self._may_pass(scope):
            message = "wrong or missing API key: set TINKER_API_KEY to the key this Tinker service was started with"
            refusal = json_response({"detail": message}, 401)
            refusal.headers["Connection"] = "close"  # without the key the connection is of no use
            await refusal(scope, receive, observed)
            return
        self._under_way += 1
        try:
            await self._app(scope, _limited(receive), observed)
        finally:
            self._under_way -= 1
            self._last_request = time.monotonic()

    def _may_pass(self, scope: Scope) -> bool:
        key = Request(scope).headers.get("x-api-key", "").encode()
        return scope["path"].startswith(self._signed_prefix) or hmac.compare_digest(key, self._key)

    def _observed(self, scope: Scope, send: Send) -> Send:
        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(scope, message["status"])
            await send(message)

        return observed


def _limited(receive: Receive) -> Receive:
    """Raises RequestError in a route that reads more than one request may contain."""
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MAX_BODY_BYTES:
            while message.get("more_body"):  # unread, the rest would break the connection before the answer is seen
                message = await receive()
            raise RequestError(
                f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB: send fewer or shorter sequences at once",
                status=413,
            )
        return message

    return limited
