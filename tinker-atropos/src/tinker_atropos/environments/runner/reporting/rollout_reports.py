"""Rollouts that are not trained, on their way to the trainer, who keeps them for people to read. They are sent in the
heartbeat's thread, beside its heartbeats.

A report costs the run nothing: there is room for a few, what does not fit is counted with its reason, and what the
trainer does not take is dropped.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, Literal

import httpx
import orjson

from tinker_atropos.environments.runner.reporting.counters import FilterReason

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4_096
"""Groups that wait to be sent: those of a large evaluation come all at once."""

MAX_LOST: Final = 64
DROPPED_PER_STEP: Final = 8
"""Groups that are sent whole of those that were dropped while one step was collected; of more only the reason."""

MAX_WHY: Final = 500

WHY_UNSENT: Final[Mapping[FilterReason, str]] = {
    "equal": "all rollouts of the group earned the same: there is nothing to learn from it",
    "too_long": "a rollout is as long as env.max_token_length, or longer",
    "wrong_size": "some of the group's rollouts are missing",
    "by_environment": "the environment kept it back",
}
"""A sentence for each reason for which a group is not sent."""


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


@dataclass
class _Lost:
    what: Literal["rollout", "group"]
    reason: str
    why: str
    count: int
    tokens: int

    def to_wire(self) -> dict[str, object]:
        told = {"what": self.what, "reason": self.reason, "why": self.why, "count": self.count}
        return told | ({"tokens": self.tokens} if self.tokens else {})


@dataclass
class RolloutReports:
    """Written in the environment's thread, read in the heartbeat's."""

    _groups: deque[dict[str, Any]] = field(default_factory=deque)
    _lost: deque[_Lost] = field(default_factory=lambda: deque(maxlen=MAX_LOST))
    _lock: Lock = field(default_factory=Lock)
    _step: int = -1
    _sent_whole: int = 0

    def evaluated(
        self,
        step: int,
        group: Mapping[str, object],
        sets: Sequence[str] = (),
        worth: Sequence[float] = (),
        *,
        greedy: bool = False,
    ) -> None:
        """A group of the held-out sets of these names, sampled from the weights after `step`. `worth`: what the figure
        counts each rollout as; empty: not known. `greedy`: at temperature 0, beside others of the same item.
        """
        if len(self._groups) < MAX_WAITING:
            told = {"fate": "evaluated", "step": step, "group": group}
            self._groups.append({**told, "sets": list(sets), "worth": list(worth), "greedy": greedy})
        else:
            self.lost("group", "not_kept", f"more than {MAX_WAITING} groups waited to be kept: this one was evaluated")

    def dropped(self, step: int, reason: str, why: str, group: Any) -> None:
        """A group that is not sent to be trained, while `step` is collected."""
        if step != self._step:
            self._step, self._sent_whole = step, 0
        has_room = self._sent_whole < DROPPED_PER_STEP and len(self._groups) < MAX_WAITING
        whole = isinstance(group, Mapping) and has_room
        if whole:
            self._sent_whole += 1
            self._groups.append({"fate": "dropped", "reason": reason, "why": why[:MAX_WHY], "group": group})
        else:
            self.lost("group", reason, why)

    def lost(self, what: Literal["rollout", "group"], reason: str, why: str, tokens: int = 0) -> None:
        """A rollout or a group that came to nothing."""
        why = why[:MAX_WHY].encode(errors="replace").decode()  # a file name may have bytes that are not text
        with self._lock:
            last = self._lost[-1] if self._lost else None
            if last is not None and (last.what, last.reason, last.why) == (what, reason, why):
                last.count += 1
                last.tokens += tokens
            else:
                self._lost.append(_Lost(what, reason, why, 1, tokens))

    def take(self) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """All groups and all losses that wait, as `POST /rl/rollouts` knows them; they wait no longer."""
        groups = [self._groups.popleft() for _ in range(len(self._groups))]
        with self._lock:
            lost = [each.to_wire() for each in self._lost]
            self._lost.clear()
        return groups, lost


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


def encode(payload: Any) -> bytes:
    """A group, or a list of them, as it is sent. Raises orjson.JSONEncodeError."""
    return orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
