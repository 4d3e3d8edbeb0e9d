"""An API server that answers from a script: for what a real one cannot do on demand."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from rl_operator.cluster.api_server.client import ClusterClient


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """One answer; `text` is sent as it is.

    `lines` makes it a watch: the stream ends after them; `hangs` keeps it silent forever.
    """

    body: Any = None
    status: int = 200
    lines: tuple[Any, ...] | None = None
    text: str | None = None
    hangs: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeApi:
    """The last answer of a script repeats. Unscripted requests get a 404 Status."""

    requests: list[Request] = field(default_factory=list)
    url: str = ""
    _scripts: dict[tuple[str, str], list[Answer]] = field(default_factory=lambda: defaultdict(list))

    def answers(self, method: str, path: str, *answers: Answer) -> None:
        """Script what `method path` gets, in order. Watches are scripted under the method WATCH."""
        self._scripts[method, path].extend(answers)

    def asked(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if request.query.get("watch") else request.method
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append(Request(method, request.path, dict(request.query), dict(request.headers), body))
        script = self._scripts[method, request.path]
        answer = (script.pop(0) if len(script) > 1 else script[0]) if script else Answer({"message": "no such"}, 404)
        if answer.text is not None:
            return web.Response(text=answer.text, status=answer.status, headers=answer.headers)
        if answer.lines is None and not answer.hangs:
            return web.json_response(answer.body, status=answer.status, headers=answer.headers)
        return await self._stream(request, answer)

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in answer.lines or ():
            await response.write(json.dumps(line).encode() + b"\n")
        if answer.hangs:
            await asyncio.Event().wait()  # canceled when the client leaves or the server shuts down
        return response


@asynccontextmanager
async def serving(api: FakeApi) -> AsyncIterator[FakeApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


def write_kubeconfig(folder: Path, server: str, token: str = "secret-token") -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


async def connect(api: FakeApi, folder: Path, request_seconds: float = 5.0) -> ClusterClient:
    return await ClusterClient.connect(str(write_kubeconfig(folder, api.url)), request_seconds=request_seconds)
