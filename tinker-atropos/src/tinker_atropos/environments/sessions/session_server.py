"""The endpoint of all rollouts of this process: a request's key tells which rollout it belongs to."""

from collections import deque
from contextlib import AsyncExitStack

from starlette.applications import Starlette
from starlette.requests import Request

from tinker_atropos.chat.chat_endpoint import Endpoint
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.request_handling import RefusedRequestError, Told
from tinker_atropos.environments.sessions.rollout_session import OVER, RolloutSession, Sampling
from tinker_atropos.serving import bind, serve

KEYS_REMEMBERED = 10_000
"""Of rollouts that are over: a program that goes on is told so, and not that its key is wrong."""


class SessionServer:
    """On loopback, on a port that the kernel chooses. `max_length` bounds prompt and answer together, in tokens."""

    def __init__(self, renderer: ChatRenderer, model: str, max_length: int) -> None:
        self._renderer, self._max_length = renderer, max_length
        self._endpoint = Endpoint(model, renderer, max_length, self._whose)
        self._sessions: dict[str, RolloutSession] = {}
        self._over: deque[str] = deque(maxlen=KEYS_REMEMBERED)
        self._serving = AsyncExitStack()
        self._url = ""

    async def start(self) -> None:
        app = Starlette(routes=self._endpoint.routes(Told()))
        port = await self._serving.enter_async_context(serve(app, bind("127.0.0.1", 0, "the sessions' port")))
        self._url = f"http://127.0.0.1:{port}/v1"

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)
        await self._serving.aclose()

    def begin(self, sample: Sampling, split: str = "train") -> RolloutSession:
        session = RolloutSession(self._url, self._renderer, sample, self._max_length, split)
        self._sessions[session.api_key] = session
        return session

    def end(self, session: RolloutSession) -> None:
        session.end()
        if self._sessions.pop(session.api_key, None) is not None:
            self._over.append(session.api_key)

    def _whose(self, request: Request) -> RolloutSession:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key in self._sessions:
            return self._sessions[key]
        if key in self._over:
            raise RefusedRequestError(OVER, status=409)
        raise RefusedRequestError("the key is of no rollout: each has one of its own", status=401)
