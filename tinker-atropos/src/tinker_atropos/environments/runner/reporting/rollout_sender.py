"""Sends the trainer what `RolloutReports` holds, in the heartbeat's thread and beside its heartbeats."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import httpx
import orjson

from tinker_atropos.environments.runner.reporting.group_sender import encode
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutReports

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

logger = logging.getLogger(__name__)


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

    def _encoded(self, groups: Iterable[dict[str, Any]]) -> Iterator[bytes]:
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
