"""The trainer's inference server in a thread of its own: an environment that blocks the event loop while it waits for
an answer, as with a synchronous client, blocks no other process's loop in a run either.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.scripted_sampler import ScriptedSampler
from tinker_atropos.errors import RunError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.inference_routes import SEQUENCE_FULL, InferenceServer, inference_app
from tinker_atropos.trainer.inference.ledger import Ledger

START_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
MAX_KINDS: Final = 20
"""Refusals that are kept: a message may quote what the client sent."""


class RequestLog:
    """An ASGI app that counts the requests of another one by route, and their refusals by message."""

    def __init__(self, app: ASGIApp, requests: Counter[str], refused: Counter[str]) -> None:
        self._app, self._requests, self._refused = app, requests, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body = 0, b""

        async def watched(message: Message) -> None:
            nonlocal status, body
            status = message.get("status", status)
            if status >= 400:
                body += message.get("body", b"")
            await send(message)

        self._requests[scope["path"]] += 1
        await self._app(scope, receive, watched)
        if status >= 400 and _code(body) != SEQUENCE_FULL:
            self._note(f"{scope['path']}: {status} {_said(body)}")

    def _note(self, refusal: str) -> None:
        if refusal in self._refused or len(self._refused) < MAX_KINDS:
            self._refused[refusal] += 1


class ScriptedPolicy:
    """The policy of step 0, its ledger, and where it is served."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.sampler = ScriptedSampler(tokenizer, seed)
        self.ledger, self.current = Ledger(), CurrentPolicy()
        self.current.swap(Policy(0, self.sampler), opened=True)
        self.generator = Generator(self.current, self.ledger, _raise)
        self.url = ""

    @contextlib.contextmanager
    def served(self, app: ASGIApp) -> Iterator[None]:
        """On a loopback port that the kernel chooses, while the block runs."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
        thread = threading.Thread(target=_serve, args=(app, started), name="policy", daemon=True)
        thread.start()
        loop, ended, port = started.result(START_SECONDS)
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(END_SECONDS)

    def app(self, tokenizer: Tokenizer, default_max_tokens: int, model: str) -> ASGIApp:
        renderer = chat_renderer(tokenizer, model)
        return inference_app(InferenceServer(self.generator, renderer, default_max_tokens, model))


def _serve(app: ASGIApp, started: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]") -> None:
    async def serving() -> None:
        ended = asyncio.Event()
        async with serve(app, bind("127.0.0.1", 0, "RL_INFERENCE_URL")) as port:
            started.set_result((asyncio.get_running_loop(), ended, port))
            await ended.wait()

    try:
        asyncio.run(serving())
    except Exception as error:  # raised where it is waited for
        if started.done():
            raise
        started.set_exception(error)


def _raise(error: RunError) -> None:
    """There is no backend that could fail, and no context that could overflow."""
    raise error


def _code(body: bytes) -> str | None:
    """What a refusal is called, if it has a name."""
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return code if isinstance(code, str) else None


def _said(body: bytes) -> str:
    """The message in a refusal."""
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body.decode(errors="replace")[:300]
