"""A proxy between one operator and the API server: a test sees every call, and may interfere.

Hooks are plain functions that return what to do with a call, its answer or an event of its watch; the proxy does it.
They run in the proxy's thread, one at a time, and must not wait. Without hooks the proxy is transparent.
"""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

HOST = "127.0.0.1"
MAX_LINE = 2**24
"""Bytes of one event, or of one body."""
SECONDS_TO_ACT = 10.0
"""How long the proxy's own start and end may take."""
HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding"})
"""Headers that concern one connection. Nothing is compressed: hooks read bodies."""

Event = Mapping[str, Any]
"""One line of a watch: `type` and `object`."""


# --- what hooks see -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ProxiedCall:
    number: int
    """From 1, in the order of arrival at this proxy."""
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")

    def __str__(self) -> str:
        return f"{self.number}: {self.method} {self.path}{' (watch)' if self.watch else ''}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's, or a hook's own. A watch's has no body: its events come one by one."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


# --- what hooks return --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Pass:
    """Let it continue."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Break the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a process, and cut the connection."""

    pid: int


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep it until `release` is set, then let it continue; `reached` is set when something is held. Never released: a
    half-open connection, until the client gives up.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Action = Pass | Cut | Kill | Delay | Hold | Answer


def refusal(code: int, reason: str, **headers: str) -> Answer:
    """A `Status` as the API server answers it, e.g. `refusal(429, "TooManyRequests", **{"Retry-After": "1"})`."""
    return Answer(code, json.dumps(_status(code, reason)).encode(), {"Content-Type": "application/json", **headers})


def error_event(code: int, reason: str) -> Event:
    """What a watch sends when it cannot continue, e.g. `error_event(410, "Expired")`; the API server then ends it."""
    return {"type": "ERROR", "object": _status(code, reason)}


def _status(code: int, reason: str) -> dict[str, Any]:
    message = f"{reason}: said by the test's proxy"
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "code": code, "reason": reason, "message": message}


@dataclass(frozen=True, slots=True)
class Hooks:
    before: Callable[[ProxiedCall], Action] = lambda _call: Pass()
    """Before a call is passed on."""
    after: Callable[[ProxiedCall, Answer], Action] = lambda _call, _answer: Pass()
    """After the API server answered, before the operator hears of it."""
    event: Callable[[ProxiedCall, Event], Sequence[Event | Delay | Hold | Cut | Kill]] = lambda _call, event: (event,)
    """In the place of an event: nothing drops it, twice the event repeats it, a hook that keeps events reorders."""


class _CutError(Exception):
    """The connection is to be broken off."""


class ApiProxy:
    """Listens on loopback, in a separate thread, from `with` on. `hooks` may be exchanged at any time."""

    def __init__(self, upstream: str) -> None:
        """`upstream`: the API server's URL; its certificate is not checked."""
        self.hooks = Hooks()
        self.calls: list[ProxiedCall] = []
        """All so far."""

        self._upstream = upstream
        self._faults: list[Exception] = []
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def server(self) -> str:
        """The URL for a kubeconfig: plain HTTP, over which the operator's clients send their token as well."""
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS_TO_ACT)
        self._loop.close()
        if self._faults and kind is None:
            raise self._faults[0]

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_TO_ACT)

    # --- in the proxy's thread ----------------------------------------------------------------------------------
    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
            read_bufsize=MAX_LINE,
        )
        application = web.Application(client_max_size=MAX_LINE)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1, handle_signals=False
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._pass(request)
        except (_CutError, aiohttp.ClientError, OSError):
            pass  # an API server that breaks off is a connection that breaks off here, too
        except Exception as error:  # noqa: BLE001 -- a hook's mistake fails the test, when the proxy is left
            self._faults.append(error)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)  # the client is gone

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = ProxiedCall(len(self.calls) + 1, request.method, request.path, dict(request.query), body)
        self.calls.append(call)
        if own := await self._perform(self.hooks.before(call)):
            return _whole(own)
        async with self._session.request(
            request.method,
            URL(self._upstream + request.raw_path, encoded=True),
            headers=_passed_on(request.headers),
            data=body or None,
        ) as response:
            streamed = call.watch and response.status == 200
            text = b"" if streamed else await response.read()
            answer = Answer(response.status, text, _passed_on(response.headers))
            if own := await self._perform(self.hooks.after(call, answer)):
                return _whole(own)
            return await self._stream(request, call, answer, response) if streamed else _whole(answer)

    async def _stream(
        self, request: web.Request, call: ProxiedCall, answer: Answer, response: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """A watch, event by event, until the API server ends it."""
        stream = web.StreamResponse(status=answer.status, headers=answer.headers)
        await stream.prepare(request)
        async for line in response.content:
            for item in self.hooks.event(call, json.loads(line)):
                if isinstance(item, Mapping):
                    await stream.write(json.dumps(item).encode() + b"\n")
                else:
                    await self._perform(item)
        return stream

    async def _perform(self, action: Action) -> Answer | None:
        """Do what a hook returned. Returns the hook's own answer, if any."""
        match action:
            case Answer():
                return action
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Hold(reached, release):
                reached.set()
                while not release.is_set():
                    await asyncio.sleep(0.01)
            case Kill(pid):
                os.kill(pid, signal.SIGKILL)
                raise _CutError
            case Cut():
                raise _CutError
        return None


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


def _whole(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
