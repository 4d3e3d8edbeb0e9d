"""The client of an OpenEnv server: is it there, what are its actions, and sessions, as many at once as it allows. A
session is a WebSocket of JSON texts, as OpenEnv's release 0.10.0 reads and writes them, with one answer per request:

    -> {"type": "reset", "data": {"seed": 3}}
    -> {"type": "step", "data": {"number": 5}}
    <- {"type": "observation", "data": {"observation": {…}, "reward": 0.5, "done": false}}
    <- {"type": "error", "data": {"message": "…", "code": "VALIDATION_ERROR", "errors": […]}}
    -> {"type": "close"}

Source: `openenv/core/env_server/types.py` and the route `/ws` of `http_server.py`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final, Literal

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_random_exponential
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rl_contract.env_vars import RL_OPENENV
from tinker_atropos.environments.adapters.openenv.openenv_settings import OpenEnvSettings
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.errors import MAX_FIELDS, EnvironmentLostError, in_one_line

MAX_SAID: Final = 200
"""Characters kept of what a server says about an error."""

Action = dict[str, Any]
Reward = bool | Annotated[float, Field(allow_inf_nan=False)] | None


class OpenEnvServerError(Exception):
    """The environment behind the server failed: its code raised, or the server could not make it."""


class RefusedActionError(Exception):
    """An action that does not exist. The message is for the policy: what is wrong, and what is allowed."""


class CapacityReachedError(Exception):
    """The server has as many sessions as it may have."""


class Observed(BaseModel, strict=True, frozen=True):
    """What a reset or a step led to."""

    observation: dict[str, Any]
    reward: Reward = None
    done: bool = False

    @property
    def earned(self) -> float:
        """The reward; none is 0."""
        return float(self.reward or 0.0)


class _Failure(BaseModel, strict=True):
    message: str = ""
    code: str
    errors: list[Any] = []


class _ObservationFrame(BaseModel, strict=True):
    type: Literal["observation"]
    data: Observed


class _ErrorFrame(BaseModel, strict=True):
    type: Literal["error"]
    data: _Failure


_ANSWER: Final[TypeAdapter[_ObservationFrame | _ErrorFrame]] = TypeAdapter(
    Annotated[_ObservationFrame | _ErrorFrame, Field(discriminator="type")]
)

CLOSE_FRAME: Final = '{"type":"close"}'
LIST_TOOLS: Final[Action] = {"type": "list_tools"}
"""An action of environments whose actions are tool calls (`mcp_types.py`); it may come before a reset."""


def reset_frame(seed: int) -> str:
    return _frame("reset", {"seed": seed})


def step_frame(action: Action) -> str:
    return _frame("step", action)


def _frame(kind: str, content: Mapping[str, object]) -> str:
    return to_json({"type": kind, "data": content}).decode()


def read_answer(frame: str | bytes) -> Observed:
    """What the server observed.

    Raises RefusedActionError for an action that it does not accept, CapacityReachedError, OpenEnvServerError for its
    other errors, and TransportError for a frame that is none of these.
    """
    try:
        answer = _ANSWER.validate_json(frame)
    except ValidationError as error:
        raise TransportError(f"the server sent a frame that is not an answer: {_where(error)}") from None
    if isinstance(answer, _ObservationFrame):
        return answer.data
    raise _error(answer.data)


def _error(failure: _Failure) -> Exception:
    said = failure.message.strip()[:MAX_SAID]
    match failure.code:
        case "VALIDATION_ERROR":
            return RefusedActionError(f"{_faults(failure.errors) or said}.")
        case "CAPACITY_REACHED":
            return CapacityReachedError(f"the server has no free session: {said}")
        case code:
            return OpenEnvServerError(f"the server answered {code[:MAX_SAID]}: {said}")


def _faults(errors: list[object]) -> str:
    """`number: Input should be a valid integer; …`, from pydantic's errors as the server sends them."""
    found = [each for each in errors if isinstance(each, dict)][:MAX_FIELDS]
    return "; ".join(f"{_place(each.get('loc'))}: {str(each.get('msg'))[:MAX_SAID]}" for each in found)


def _place(loc: Any) -> str:
    return ".".join(map(str, loc))[:MAX_SAID] if isinstance(loc, list) and loc else "the action"


def _where(error: ValidationError) -> str:
    return in_one_line(error).partition(": ")[2][:MAX_SAID]


FRAMES_WAITING: Final = 1
"""Frames kept of a server that sends unasked; then its socket is not read anymore."""

CLOSE_SECONDS: Final = 2.0
"""How long a server may take to end a session, and again to close its socket."""

PING_SECONDS: Final = 20.0
"""Sampling takes longer than proxies keep a silent connection."""

TOO_BIG: Final = 1009
"""The close code for a message that is too big (RFC 6455, section 7.4.1)."""


class UnreachableError(TransportError):
    """No connection: the server does not listen, or its proxy cannot reach it."""


class OpenEnvSession:
    def __init__(self, socket: ClientConnection, settings: OpenEnvSettings) -> None:
        self._socket = socket
        self._settings = settings

    @classmethod
    async def connected(cls, settings: OpenEnvSettings) -> "OpenEnvSession":
        """Raises UnreachableError, or TimeoutError if the server accepts the connection and says nothing."""
        url = settings.websocket_url
        opening = connect(
            url,
            compression=None,  # frames cannot grow, and cost no CPU
            proxy=None,  # servers are on this machine or in this cluster
            open_timeout=settings.timeout_seconds,
            close_timeout=CLOSE_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=None,  # answers have a timeout of their own
            max_size=settings.max_frame_bytes,
            max_queue=FRAMES_WAITING,
            host=settings.host,  # given explicitly, the server cannot redirect to another one
            port=settings.port,
        )
        try:
            return cls(await opening, settings)
        except TimeoutError:
            raise TimeoutError(f"{url} did not open a session within {settings.timeout_seconds:g} s") from None
        except (OSError, WebSocketException, ValueError) as error:
            raise UnreachableError(f"{url} cannot be reached: {error}") from error

    async def step(self, action: Action) -> Observed:
        """Raises RefusedActionError if the server does not accept it, and what `request` raises."""
        return await self.request(step_frame(action))

    async def request(self, frame: str) -> Observed:
        """Send a frame, and read its answer. Any error but RefusedActionError ends the session.

        Raises RefusedActionError, CapacityReachedError, OpenEnvServerError, TransportError or TimeoutError.
        """
        await self._refuse_unasked()
        seconds = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ConnectionClosed):  # why it was closed may wait to be read
                    await self._socket.send(frame)
                answer = await self._socket.recv()
        except TimeoutError:
            raise TimeoutError(f"the server did not answer within {seconds:g} s (timeoutSeconds)") from None
        except ConnectionClosed as closed:
            raise TransportError(self._why(closed)) from None
        return read_answer(answer)

    async def close(self) -> None:
        """Wait until the server has ended the session: until then it counts as one of those that it may have."""
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.send(CLOSE_FRAME)
                await self._socket.wait_closed()
        await self._socket.close()

    def abort(self) -> None:
        """Leave at once, without a word."""
        self._socket.transport.abort()

    async def _refuse_unasked(self) -> None:
        """A frame that is there before the request would be taken for its answer. It may say why the session ends."""
        try:
            async with asyncio.timeout(0):
                frame = await self._socket.recv()
        except TimeoutError:
            return
        except ConnectionClosed as closed:
            raise TransportError(self._why(closed)) from None
        read_answer(frame)
        raise TransportError("the server sent a frame that it was not asked for")

    def _why(self, closed: ConnectionClosed) -> str:
        if closed.sent is not None and closed.sent.code == TOO_BIG:
            limit = self._settings.max_frame_bytes
            return f"the server sent a frame of more than {limit} bytes (maxFrameBytes)"
        return f"the session ended in mid-episode: {closed}"


FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
"""Seconds between two attempts at a session. They are random: hundreds of rollouts may wait for the same server."""

HEALTH_PERIOD: Final = 0.5


class OpenEnvSchema(BaseModel, frozen=True):
    """`GET /schema`: JSON Schemas of what is sent and received."""

    action: dict[str, Any]


class OpenEnvClient:
    def __init__(self, settings: OpenEnvSettings) -> None:
        self.settings = settings
        self._http = httpx.AsyncClient(base_url=settings.http_url, timeout=settings.timeout_seconds, trust_env=False)
        self._free = asyncio.Semaphore(settings.max_sessions)
        self._open: set[OpenEnvSession] = set()

    async def wait_until_healthy(self, seconds: float) -> None:
        """The server may start later than we do. Raises EnvironmentLostError."""
        said = "it did not answer"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        await self._get("/health")
                    except TransportError as error:
                        said = str(error)
                    else:
                        return
                    await asyncio.sleep(HEALTH_PERIOD)
        raise EnvironmentLostError(
            f"the OpenEnv server {self.settings.url} was not healthy within {seconds:g} s: {said}; look at its "
            f"log, and check {RL_OPENENV}.url"
        )

    async def schema(self) -> OpenEnvSchema:
        """Raises EnvironmentLostError if what the server answers is none."""
        try:
            return OpenEnvSchema.model_validate_json(await self._get("/schema"))
        except (TransportError, ValidationError) as error:
            said = in_one_line(error) if isinstance(error, ValidationError) else str(error)
            raise EnvironmentLostError(f"{self.settings.url}/schema says no schemas of OpenEnv's: {said}") from None

    async def _get(self, path: str) -> bytes:
        """At most a frame's size. Raises TransportError."""
        limit, body = self.settings.max_frame_bytes, bytearray()
        try:
            async with asyncio.timeout(self.settings.timeout_seconds), self._http.stream("GET", path) as answer:
                answer.raise_for_status()
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) > limit:
                        raise TransportError(f"{path} has more than {limit} bytes (maxFrameBytes)")
        except TimeoutError:
            raise TransportError(f"{path} took more than {self.settings.timeout_seconds:g} s") from None
        except httpx.HTTPError as error:
            raise TransportError(f"{path}: {str(error).splitlines()[0] or type(error).__name__}") from error
        return bytes(body)

    @contextlib.asynccontextmanager
    async def session(self, first_frame: str) -> AsyncIterator[tuple[OpenEnvSession, Observed]]:
        """A session of the server, and its answer to a first frame, which makes the episode begin.

        Waits while all are in use, here or at the server, and while the server restarts. Raises what
        `OpenEnvSession.request` raises.
        """
        async with self._free:
            session, answer = await self._begun(first_frame)
            self._open.add(session)
            try:
                yield session, answer
                await session.close()
            finally:
                self._open.discard(session)
                session.abort()

    async def _begun(self, first_frame: str) -> tuple[OpenEnvSession, Observed]:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type((UnreachableError, CapacityReachedError)),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            stop=stop_after_delay(self.settings.timeout_seconds),
        )
        try:
            return await attempts(self._attempted, first_frame)
        except RetryError as error:
            last = error.last_attempt.exception()
            kind = TimeoutError if isinstance(last, CapacityReachedError) else TransportError
            raise kind(f"{last}; tried for {self.settings.timeout_seconds:g} s (timeoutSeconds)") from None

    async def _attempted(self, first_frame: str) -> tuple[OpenEnvSession, Observed]:
        session = await OpenEnvSession.connected(self.settings)
        try:
            return session, await session.request(first_frame)
        except BaseException:
            session.abort()
            raise

    async def close(self) -> None:
        """End everything. Sessions in use fail."""
        for session in self._open:
            session.abort()
        await self._http.aclose()
