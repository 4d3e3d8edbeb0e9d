"""Delivering groups to the trajectory API.

Takes the place of BaseEnv's own delivery, which takes a refused group (4xx) for a delivered one, and gives up on a
restarting API within a second.
"""

import asyncio
import gzip
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from tinker_atropos.environments.runner.tally import Tally
from tinker_atropos.errors import EnvironmentLostError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 120.0
GZIP_FROM_BYTES = 1024
REQUEST_TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""The API may hold a group back while its queue is full."""


class GroupSender:
    """Sends groups in the protocol's form: `/scored_data` for one, `/scored_data_list` for several, gzip from 1 KiB."""

    def __init__(self, api_url: str, tally: Tally, give_up: Callable[[EnvironmentLostError], None]) -> None:
        self._client = httpx.AsyncClient(base_url=api_url, timeout=REQUEST_TIMEOUT, trust_env=False)
        self._tally = tally
        self._give_up = give_up

    async def send(self, env: Any, scored: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Deliver, repeating for RETRY_SECONDS. A refused group is counted and told, and is not tried again.

        Raises httpx.HTTPError when the API stays unreachable.
        """
        groups = [scored] if isinstance(scored, Mapping) else list(scored)
        stamped = [{**group, "env_id": env.env_id} for group in groups]
        self._tally.kept += len(groups)
        single = isinstance(scored, Mapping)
        response = await self._post(
            "/scored_data" if single else "/scored_data_list", _encode(stamped[0] if single else stamped)
        )
        if response.is_success:
            self._tally.accepted += len(groups)
            return
        reason = f"{response.status_code}: {response.text[:300]}"
        if self._tally.was_refused(len(groups), reason):  # each kind is told once, and counted in `/status`
            logger.warning("the trajectory API refused a group (%s)", reason)
        if self._tally.hopeless:
            self._give_up(EnvironmentLostError(f"the trajectory API refuses every group ({reason})"))

    async def _post(self, path: str, body: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if len(body) >= GZIP_FROM_BYTES:
            body, headers["Content-Encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        give_up_at = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                response = await self._client.post(path, content=body, headers=headers)
                if not response.is_server_error or time.monotonic() > give_up_at:
                    return response
            except httpx.TransportError:
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(0.5)


def _encode(payload: Any) -> bytes:
    return orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
