"""A proxy between two processes that injects faults: its own answer, a dropped connection before or after the request
went through, a delay, a cut of everything.

One connection carries one request: a drop affects exactly one request.
"""

import asyncio
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["answer", "refuse", "drop_before", "drop_after", "delay"]

UPSTREAM_HEADERS = re.compile(rb"\r\n(connection|host):[^\r]*", re.IGNORECASE)


@dataclass
class Fault:
    """What happens to requests `METHOD /path` that match `request` (a regular expression, from their beginning).

    The first `skip` of them pass, the next `times` are hit (None: all), or those of the `lasting` seconds from the
    first hit on. `status` and `content` (a text: HTML) are those of `answer`, and `headers` more lines of its head;
    `seconds` is how long `delay` holds a request before it goes through. What is to `refuse` is taken in hand, and its
    result is `content`. With `having`, the request's head has that, too.
    """

    kind: Kind
    request: str
    skip: int = 0
    times: int | None = 1
    status: int = 503
    seconds: float = 0.0
    seen: int = 0
    hits: int = 0
    content: dict[str, object] | str | None = None
    headers: str = ""
    having: str = ""
    lasting: float | None = None
    begun: float | None = None

    def takes(self, request: str, head: str = "") -> bool:
        if not re.match(self.request, request) or self.having.lower() not in head.lower():
            return False
        self.seen += 1
        if self.seen <= self.skip or self._over:
            return False
        self.begun = self.begun or time.monotonic()
        self.hits += 1
        return True

    @property
    def _over(self) -> bool:
        if self.lasting is not None:
            return self.begun is not None and time.monotonic() - self.begun > self.lasting
        return self.times is not None and self.hits >= self.times

    @property
    def answer(self) -> bytes:
        return _answer(self.status, self.content or {"detail": f"an injected answer: {self.status}"}, self.headers)


@dataclass
class FaultProxy:
    """Listens on a port that the kernel chose. `upstream` may be changed at any time; `seen` counts requests, and
    `numbers` are the `seq_id` of those about a model that went through, as far as they are JSON.
    """

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    numbers: list[int] = field(default_factory=list)
    url: str = ""
    _cut: bool = False
    _refused: list[Fault] = field(default_factory=list)
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultProxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await self.cut()

    async def cut(self) -> None:
        """Drop every connection, and each new one at once, until `fix`."""
        self._cut = True
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def fix(self) -> None:
        self._cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._cut:
                await self._exchange(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side hung up: so does the proxy
        finally:
            self._connections.discard(task)
            writer.transport.abort() if self._cut else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await _read_request(reader)
        method, target, _ = head.split(b" ", 2)
        request = f"{method.decode()} {urlsplit(target.decode()).path}"
        self.seen[request] += 1
        fault = next((fault for fault in self.faults if fault.takes(request, head.decode(errors="replace"))), None)
        kind = fault.kind if fault else None
        if fault and kind == "delay":
            await asyncio.sleep(fault.seconds)
        if kind == "drop_before":
            writer.transport.abort()
            return
        if fault and kind == "answer":
            answer = fault.answer
        elif fault and kind == "refuse":
            answer = _answer(200, {"request_id": f"refused-{len(self._refused)}"})
            self._refused.append(fault)
        elif refused := re.search(rb'"request_id": *"refused-(\d+)"', body):
            answer = _answer(200, self._refused[int(refused[1])].content or {})
        else:
            answer = await _while_open(reader, asyncio.ensure_future(self._forward(head, body)))
        if kind == "drop_after":
            writer.transport.abort()
            return
        writer.write(answer)
        await writer.drain()

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        """The whole answer of the upstream, as it came."""
        if number := re.search(rb'"seq_id": *(\d+)', body if b'"model_id"' in body else b""):
            self.numbers.append(int(number[1]))
        place = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            headers = b"\r\nHost: " + place.netloc.encode() + b"\r\nConnection: close\r\n\r\n"
            writer.write(UPSTREAM_HEADERS.sub(b"", head.removesuffix(b"\r\n\r\n")) + headers + body)
            return await reader.read()
        finally:
            writer.close()


def _answer(status: int, content: dict[str, object] | str, headers: str = "") -> bytes:
    body, kind = (content, "text/html") if isinstance(content, str) else (json.dumps(content), "application/json")
    head = f"HTTP/1.1 {status} Injected\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + headers.encode() + b"Connection: close\r\n\r\n" + body.encode()


async def _read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body, the body as it was sent: chunks stay chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if length:
        return head, await reader.readexactly(int(length[1]))
    body = b""
    if re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
        while not body.endswith(b"0\r\n\r\n"):
            size = await reader.readuntil(b"\r\n")
            body += size + await reader.readexactly(int(size, 16) + 2)
    return head, body


async def _while_open(client: asyncio.StreamReader, forwarding: "asyncio.Future[bytes]") -> bytes:
    """The answer, unless the client hangs up first: then the upstream is hung up on, too."""
    hung_up = asyncio.ensure_future(client.read(1))
    try:
        await asyncio.wait({forwarding, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not forwarding.done():
            raise ConnectionResetError("the client hung up")
        return forwarding.result()
    finally:
        forwarding.cancel()
        hung_up.cancel()
        await asyncio.gather(forwarding, hung_up, return_exceptions=True)
