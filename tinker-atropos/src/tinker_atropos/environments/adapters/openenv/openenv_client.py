"""The client of an OpenEnv server: is it there, what are its actions, and sessions, as many at once as it allows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_random_exponential

from tinker_atropos.environments.adapters.openenv.openenv_frames import CapacityReachedError, Observed
from tinker_atropos.environments.adapters.openenv.openenv_session import OpenEnvSession, UnreachableError
from tinker_atropos.environments.adapters.openenv.openenv_settings import VARIABLE, OpenEnvSettings
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.errors import EnvironmentLostError
from tinker_atropos.validation_errors import in_one_line

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
            f"log, and check {VARIABLE}.url"
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
