"""Sending groups to the trajectory API, and rollouts that are only shown to the trainer.

The former replaces BaseEnv's own delivery, which treats a refused group (4xx) as delivered, and gives up on a
restarting API within a second. The latter works in the heartbeat's thread, beside its heartbeats.
"""

import asyncio
import contextlib
import gzip
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

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


SEND_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 10.0
MAX_GROUPS: Final = 16
MAX_BYTES: Final = 2**19
"""Of the groups of one report: reading them holds up the trainer's answers to others, 10 ms a megabyte."""

NOT_READ: Final[Mapping[int, str]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "it is too large to be reported",
    HTTPStatus.TOO_MANY_REQUESTS: "more was reported than the trainer can read beside its work",
}
"""Why the trainer does not keep a group that nothing is wrong with."""


class RolloutSender:
    """`index` is that of the environment. No failure reaches the caller: the first one is logged."""

    def __init__(self, inference_url: str, reports: RolloutReports, index: int) -> None:
        self._client = httpx.AsyncClient(base_url=inference_url, timeout=TIMEOUT_SECONDS, trust_env=False)
        self._reports = reports
        self._index = index
        self._sending = asyncio.Lock()
        self._has_warned = False

    async def keep_sending(self) -> None:
        """Until canceled."""
        async with contextlib.aclosing(self._client):
            while True:
                await self.send()
                await asyncio.sleep(SEND_SECONDS)

    async def send(self) -> None:
        """Send all that waits. What cannot be sent is dropped."""
        async with self._sending:
            groups, lost = self._reports.take()
            try:
                if lost:
                    await self._post("lost", [orjson.dumps(lost)[1:-1]])
                for encoded in reports(self._encoded(groups)):
                    await self._post("groups", encoded)
            except httpx.HTTPError as error:
                self._warn(repr(error))

    async def _post(self, name: str, encoded: Sequence[bytes]) -> None:
        body = b'{"environment":%d,"%b":[%b]}' % (self._index, name.encode(), b",".join(encoded))
        response = await self._client.post("/rl/rollouts", content=body)
        if response.status_code == HTTPStatus.BAD_REQUEST and len(encoded) > 1:
            for each in encoded:  # one that is not a group must not cost the others
                await self._post(name, [each])
        elif response.is_error:
            self._warn(f"{response.status_code}: {response.text[:300]}")
            if name == "groups" and response.status_code in NOT_READ:
                for _ in encoded:
                    self._reports.lost("group", "not_kept", NOT_READ[response.status_code])

    def _encoded(self, groups: Iterable[dict[str, object]]) -> Iterator[bytes]:
        for group in groups:
            try:
                yield encode(group)
            except orjson.JSONEncodeError as error:
                self._warn(f"a group cannot be written as JSON: {error}")

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            logger.warning("rollouts that are not trained cannot be shown: the trainer did not take them (%s)", why)
        self._has_warned = True


def reports(groups: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Groups by the reports that they are sent in."""
    waiting: list[bytes] = []
    for group in groups:
        if waiting and (len(waiting) == MAX_GROUPS or sum(map(len, waiting)) + len(group) > MAX_BYTES):
            yield waiting
            waiting = []
        waiting.append(group)
    if waiting:
        yield waiting
