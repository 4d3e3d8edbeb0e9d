"""One session of an OpenEnv server: a WebSocket, on which each request has one answer."""

import asyncio
import contextlib
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from tinker_atropos.environments.adapters.openenv.openenv_frames import (
    CLOSE_FRAME,
    Action,
    Observed,
    read_answer,
    step_frame,
)
from tinker_atropos.environments.adapters.openenv.openenv_settings import OpenEnvSettings
from tinker_atropos.environments.rollout.rollouts import TransportError

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
