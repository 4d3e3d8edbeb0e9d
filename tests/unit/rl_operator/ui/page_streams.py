"""Server-sent events of an ASGI application, without a server: httpx' transport waits for the end of an answer."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from starlette.types import ASGIApp, Message

END_SECONDS = 60  # only ends a hang


class PageStream:
    """A GET request that goes on inside of the block."""

    def __init__(self, app: ASGIApp, path: str, headers: Mapping[str, str], method: str = "GET") -> None:
        self.status = 0
        self._app = app
        path, _, query = path.partition("?")
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("192.0.2.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._left = asyncio.Event()
        self._asked = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self.status = (await self._next())["status"]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, trace: TracebackType | None) -> None:
        self._left.set()
        await asyncio.wait_for(self._task, END_SECONDS)

    async def chunk(self) -> str:
        """The next part of the answer; empty at its end."""
        message = await self._next()
        return str(message.get("body", b"").decode())

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._sent.put)
        finally:
            await self._sent.put({"type": "http.response.body", "body": b""})

    async def _next(self) -> Message:
        return await asyncio.wait_for(self._sent.get(), END_SECONDS)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}
