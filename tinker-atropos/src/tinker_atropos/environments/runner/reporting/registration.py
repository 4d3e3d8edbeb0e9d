"""Registration at the trajectory API.

BaseEnv's own request gives up within a second, and does not tell several environments of the same name apart.
The loop around it (`register_env`) stays BaseEnv's.
"""

import asyncio
import functools
import logging
from typing import Any

import httpx

from tinker_atropos.errors import InternalError

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5


class EnvironmentRegistration:
    """Retries until the api answers: an unresolved name, a closed port and a restart are waited out. `trouble` is the
    last error.
    """

    def __init__(self, api_url: str, index: int) -> None:
        self.trouble: str | None = None
        self._url = f"{api_url}/register-env"
        self.index = index

    async def register(self, env: Any, deadline_seconds: float) -> None:
        """Raises InternalError if the trainer does not start in time, or the api refuses."""
        env._register_env = functools.partial(self.ask, env)  # noqa: SLF001 -- the request inside `register_env`
        try:
            async with asyncio.timeout(deadline_seconds):
                await env.register_env()
        except TimeoutError:
            why = f"{self.trouble}: is RL_API_URL right, and does its pod run?" if self.trouble else "see its log"
            raise InternalError(f"the trainer did not start within {deadline_seconds:.0f} s: {why}") from None

    async def ask(self, env: Any) -> dict[str, Any]:
        """The api's answer. Raises InternalError if it refuses."""
        config = env.config
        registration = {
            "max_token_length": config.max_token_length,
            "desired_name": config.wandb_name,
            "weight": config.inference_weight,
            "min_batch_allocation": config.min_batch_allocation,
            "group_size": config.group_size,
            "index": self.index,
        }
        async with httpx.AsyncClient(timeout=10.0, trust_env=False) as client:
            while True:
                try:
                    response = await client.post(self._url, json=registration)
                except httpx.TransportError as error:
                    self._note(f"{type(error).__name__}: {error}")
                else:
                    if response.is_client_error:
                        raise InternalError(
                            f"the trajectory API refused this environment ({response.status_code}): "
                            f"{response.text[:300]}"
                        )
                    if response.is_success:
                        self.trouble = None
                        answer: dict[str, Any] = response.json()
                        return answer
                    self._note(f"HTTP {response.status_code}: {response.text[:300]}")
                await asyncio.sleep(PAUSE_SECONDS)

    def _note(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.info("the trajectory API does not answer yet: %s", trouble)
        self.trouble = trouble
