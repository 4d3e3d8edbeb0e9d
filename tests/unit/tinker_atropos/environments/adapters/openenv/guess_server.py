"""An OpenEnv server that speaks its frames exactly, and on request as badly as it can: guess a number from 0 to 9."""

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Frame = dict[str, Any]
GUESS_SCHEMA: Frame = {
    "title": "Guess",
    "type": "object",
    "properties": {
        "metadata": {"type": "object", "title": "Metadata"},
        "number": {"type": "integer", "title": "Number", "minimum": 0, "maximum": 9},
    },
    "required": ["number"],
    "additionalProperties": False,
}
CALL_TOOL_SCHEMA: Frame = {
    "title": "CallToolAction",
    "type": "object",
    "properties": {"tool_name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["tool_name"],
}


def observation(content: Frame, reward: float | None = None, *, done: bool = False) -> str:
    return json.dumps(
        {"type": "observation", "data": {"observation": {"metadata": {}, **content}, "reward": reward, "done": done}}
    )


def error(code: str, message: str = "it happened", **more: Any) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})


def too_large(number: Any) -> str:
    """As pydantic says it."""
    fault = {"type": "less_than_equal", "loc": ["number"], "msg": "Input should be at most 9", "input": number}
    return error("VALIDATION_ERROR", "Invalid message", errors=[fault])


@dataclass
class GuessServer:
    """The secret is the last digit of the seed. `on_reset` and `on_step` may take a frame over."""

    max_sessions: int = 64
    full: int = 0
    """So many sessions are refused first."""
    action_schema: Frame = field(default_factory=lambda: GUESS_SCHEMA)
    on_reset: Callable[[ServerConnection, Frame], Awaitable[None]] | None = None
    on_step: Callable[[ServerConnection, Frame], Awaitable[None]] | None = None
    pages: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """What paths answer instead: a status and a body."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with the pages."""
    port: int = 0
    seeds: list[int] = field(default_factory=list)
    actions: list[Frame] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    most_sessions: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["GuessServer"]:
        """On the same port as before, if it has listened before."""
        options: Any = {"process_request": self._page, "ping_interval": None, "close_timeout": 0.1}
        async with serve(self._session, "127.0.0.1", self.port, compression=None, **options) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            yield self

    def _page(self, _socket: ServerConnection, request: Request) -> Response | None:
        path = request.path
        self.counts[path] += 1
        known = {
            "/health": (200, b'{"status":"healthy"}'),
            "/schema": (200, json.dumps({"action": self.action_schema, "observation": {}, "state": {}}).encode()),
        } | self.pages
        if path == "/ws" and path not in known:
            return None
        status, body = known.get(path, (404, b""))
        headers = Headers({"Content-Length": str(len(body)), "Connection": "close"} | self.headers)
        return Response(status, HTTPStatus(status).phrase, headers, body)

    async def _session(self, socket: ServerConnection) -> None:
        if self.full > 0 or self.sessions >= self.max_sessions:
            self.full -= 1
            self.counts["refused"] += 1
            await socket.send(error("CAPACITY_REACHED", active_sessions=self.sessions, max_sessions=self.max_sessions))
            return
        self.sessions += 1
        self.most_sessions = max(self.most_sessions, self.sessions)
        try:
            with contextlib.suppress(ConnectionClosed):
                await self._episode(socket)
        finally:
            self.sessions -= 1

    async def _episode(self, socket: ServerConnection) -> None:
        secret = 0
        async for text in socket:
            frame: Frame = json.loads(text)
            self.counts[frame["type"]] += 1
            match frame:
                case {"type": "reset", "data": {"seed": int(seed)}}:
                    secret = seed % 10
                    self.seeds.append(seed)
                    if self.on_reset is not None:
                        await self.on_reset(socket, frame)
                    else:
                        await socket.send(observation({"hint": "Guess."}))
                case {"type": "step", "data": dict(action)}:
                    self.actions.append(action)
                    if self.on_step is not None:
                        await self.on_step(socket, frame)
                    else:
                        await socket.send(_judged(action, secret))
                case {"type": "close"}:
                    return


def _judged(action: Frame, secret: int) -> str:
    number = action.get("number")
    if not isinstance(number, int) or number > 9:
        return too_large(number)
    if number == secret:
        return observation({"hint": "Right."}, 0.75, done=True)
    return observation({"hint": "higher" if number < secret else "lower"}, 0.125 if number == 5 else None)


async def silence(socket: ServerConnection, _frame: Frame) -> None:
    """Never answers."""
    await socket.wait_closed()
