"""Sending groups to the trajectory API.

Replaces BaseEnv's own delivery, which treats a refused group (4xx) as delivered, and gives up on a restarting API
within a second.
"""

import asyncio
import gzip
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutReports
from tinker_atropos.errors import EnvironmentLostError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 120.0
REPEAT_AFTER_SECONDS = 0.5
GZIP_FROM_BYTES = 1024
REQUEST_TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""The API holds a request while its journal is full, and answers 503 before this timeout."""


class GroupSender:
    """Sends groups in the protocol's form: `/scored_data` for one, `/scored_data_list` for several, gzip from 1 KiB."""

    def __init__(
        self,
        api_url: str,
        counters: Counters,
        give_up: Callable[[EnvironmentLostError], None],
        *,
        reports: RolloutReports | None = None,
        index: int = 0,
    ) -> None:
        """`reports`: where refused groups are kept for people to read. `index` is the environment's."""
        self._index = index
        self._client = httpx.AsyncClient(base_url=api_url, timeout=REQUEST_TIMEOUT, trust_env=False)
        self._counters = counters
        self._reports = RolloutReports() if reports is None else reports
        self._give_up = give_up

    async def send(self, env: Any, scored: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Deliver, retrying for RETRY_SECONDS while the API is unavailable. A refused group is counted and not retried.

        Raises httpx.HTTPError if the API stays unreachable.
        """
        groups = [scored] if isinstance(scored, Mapping) else list(scored)
        stamped = [self._stamped(group, env.env_id) for group in groups]
        self._counters.kept += len(groups)
        single = isinstance(scored, Mapping)
        try:
            body = encode(stamped[0] if single else stamped)
        except orjson.JSONEncodeError as error:
            refusals = [f"it cannot be written as JSON: {error}"] * len(groups)
        else:
            response = await self._post("/scored_data" if single else "/scored_data_list", body)
            refusals = _refusals(response, len(groups))
        self._counters.accepted += len(groups) - len(refusals)
        for refusal in refusals:
            self._was_refused(refusal)
            self._reports.lost("group", "refused", refusal)

    def _stamped(self, group: Mapping[str, Any], env_id: int) -> dict[str, Any]:
        """With who sent it: `env_id` is the trajectory API's number, `environment` the one that people know."""
        told = {**(group.get("group_overrides") or {}), "environment": self._index}
        return {**group, "env_id": env_id, "group_overrides": told}

    def _was_refused(self, reason: str) -> None:
        if self._counters.was_refused(1, reason):  # each kind is logged once, and counted in `/status`
            logger.warning("the trajectory API refused a group (%s)", reason)
        if self._counters.hopeless:
            self._give_up(EnvironmentLostError(f"the trajectory API refuses every group ({reason})"))

    async def _post(self, path: str, body: bytes) -> httpx.Response:
        """A retry carries the key of the first: the API may have stored the groups, and only its answer was lost."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        if len(body) >= GZIP_FROM_BYTES:
            body, headers["Content-Encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        give_up_at = time.monotonic() + RETRY_SECONDS
        while True:
            sent_at = time.monotonic()
            try:
                response = await self._client.post(path, content=body, headers=headers)
            except httpx.TransportError:
                if time.monotonic() > give_up_at:
                    raise
            else:
                give_up_at += time.monotonic() - sent_at  # it held the request, and was not down
                if not response.is_server_error or time.monotonic() > give_up_at:
                    return response
            await asyncio.sleep(REPEAT_AFTER_SECONDS)


def _refusals(response: httpx.Response, groups: int) -> list[str]:
    """A sentence for each group that was refused. The good groups of a list are accepted even if others are bad."""
    if not response.is_success:
        return [f"{response.status_code}: {response.text[:300]}"] * groups
    return [str(refusal) for refusal in response.json().get("refused", [])]


def encode(payload: Any) -> bytes:
    """A group, or a list of them, as it is sent. Raises orjson.JSONEncodeError."""
    return orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
