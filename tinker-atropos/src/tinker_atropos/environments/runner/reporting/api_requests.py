"""What the trajectory API is asked and told: registration, the room in its queue, and groups.

BaseEnv's own registration gives up within a second, and does not tell several environments of the same name apart.
The loop around it (`register_env`) stays BaseEnv's. Its delivery treats a refused group (4xx) as delivered, and gives
up on a restarting API within a second.

Nothing signals that the queue has drained. So the API is asked again and again, which must not cost much while an
environment has nothing to do, and not delay it when it has.
"""

import asyncio
import contextlib
import functools
import gzip
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import httpx
import orjson
from atroposlib.envs.base import BaseEnv, EvalHandlingEnum

from rl_contract.processes import NO_SPACE_STATUS
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.environments.runner.reporting.items_under_way import ItemsUnderWay
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutReports, encode
from tinker_atropos.errors import EnvironmentLostError, InternalError
from tinker_atropos.held_connection import SILENT_SECONDS
from tinker_atropos.running_time import running_seconds

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
RETRY_SECONDS = 2 * SILENT_SECONDS
"""An api that is gone ends the environment sooner (`heartbeat.py`)."""

REPEAT_AFTER_SECONDS = 0.5
GZIP_FROM_BYTES = 1024
REQUEST_TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""The API holds a request while its journal is full, and answers 503 before this timeout."""


class EnvironmentRegistration:
    """Retries until the api answers: an unresolved name, a closed port and a restart are waited out. `trouble` is the
    last error.
    """

    def __init__(self, api_url: str, index: int) -> None:
        self.trouble: str | None = None
        self._limit: asyncio.Timeout | None = None
        self._url = f"{api_url}/register-env"
        self.index = index

    async def register(self, env: Any, deadline_seconds: float) -> None:
        """Raises InternalError if the trainer does not start in time, or the api refuses."""
        env._register_env = functools.partial(self.ask, env)  # noqa: SLF001 -- the request inside `register_env`
        try:
            async with WORKING_TIME.limited(deadline_seconds) as self._limit:
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
                    if response.status_code == NO_SPACE_STATUS and self._limit and (due := self._limit.when()):
                        self._limit.reschedule(due + PAUSE_SECONDS)
                    self._note(f"HTTP {response.status_code}: {response.text[:300]}")
                await asyncio.sleep(PAUSE_SECONDS)

    def _note(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.info("the trajectory API does not answer yet: %s", trouble)
        self.trouble = trouble


SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
SHARE_OF_STANDSTILL: Final = 1 / 20
"""The pause until the next question, as a share of the time for which the answer has been the same: whoever has waited
for room learns of it that much later at most.
"""


class StatusPolls:
    """When an environment asks again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answer: Mapping[str, object] | None = None
        self._since = 0.0

    async def next_event(self, answer: Mapping[str, Any], work: set[asyncio.Task[Any]]) -> None:
        """Wait until some of the work ends, or for a pause after the last answer."""
        pause = self.pause(answer)
        if work:
            await asyncio.wait(work, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(pause)

    def pause(self, answer: Mapping[str, object]) -> float:
        """In seconds."""
        now = self._clock()
        if answer != self._answer:
            self._answer, self._since = dict(answer), now  # environments may change it in place
        return min(max(SHORTEST_PAUSE, SHARE_OF_STANDSTILL * (now - self._since)), LONGEST_PAUSE)


@contextlib.asynccontextmanager
async def kept_connection(env: Any) -> AsyncIterator[None]:
    """Let BaseEnv's `get_status` keep its connection while the block runs: it opens a session for each request. An
    environment that overrides it keeps its own.
    """
    if type(env).get_status is not BaseEnv.get_status:
        yield
        return
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        env.get_status = BaseEnv.get_status.retry.wraps(functools.partial(get_status, session, env))
        try:
            yield
        finally:
            del env.get_status


async def get_status(session: aiohttp.ClientSession, env: Any) -> None:
    """What BaseEnv's does once, on a session of ours."""
    config = env.config
    async with session.get(f"{config.rollout_server_url}/status-env", json={"env_id": env.env_id}) as response:
        response.raise_for_status()
        env.status_dict = await response.json()
    per_server = config.max_num_workers_per_node * len(env.server.servers)
    env.max_num_workers = per_server if config.max_num_workers == -1 else config.max_num_workers
    await env.server.update_weight(env.status_dict["env_weight"])


def free_workers(env: Any) -> int:
    """How many more groups `env.add_train_workers` starts now, beyond those queued and in flight; 0 or less: none.

    Then it is not called: it cancels rollouts if a group is briefly counted as both, or once there is an evaluation.
    """
    room = env.config.max_batches_offpolicy * env.derived_batch_size // env.config.group_size
    return int(min(_most_workers(env), room - env.status_dict["queue_size"]) - len(env.workers))


def _most_workers(env: Any) -> int:
    if env.eval_runner is None or env.eval_runner.done():
        return int(env.max_num_workers)
    match env.config.eval_handling:
        case EvalHandlingEnum.STOP_TRAIN:
            return 0
        case EvalHandlingEnum.LIMIT_TRAIN:
            return int(env.max_num_workers * env.config.eval_limit_ratio)
    return int(env.max_num_workers)


def respect_room(env: Any, accepted: int = 0) -> None:
    """No more groups in flight than the run still needs: `room`, in rollouts, is an extension of `/status-env`.

    The last group may exceed it: otherwise a room smaller than a group would never be used. BaseEnv resets the limit of
    workers with each status, and those in flight are not canceled (`free_workers`). `accepted`: how many groups were
    since the status was asked for, which may not know of them. Those accepted later are taken off as they are.
    """
    room = env.status_dict.get("room")
    if room is not None:
        env.max_num_workers = min(env.max_num_workers, math.ceil(room / env.config.group_size) - accepted)


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
        items: ItemsUnderWay | None = None,
    ) -> None:
        """`reports`: where refused groups are kept for people to read. `index` is the environment's. `items`: of which
        groups are sent.
        """
        self._index, self._items = index, items or ItemsUnderWay()
        self._client = httpx.AsyncClient(base_url=api_url, timeout=REQUEST_TIMEOUT, trust_env=False)
        self._counters = counters
        self._reports = RolloutReports() if reports is None else reports
        self._give_up = give_up

    async def send(self, env: Any, scored: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Deliver, retrying for RETRY_SECONDS while the API is unavailable. A refused group is counted and not retried.

        Raises httpx.HTTPError if the API stays unreachable.
        """
        groups = [scored] if isinstance(scored, Mapping) else list(scored)
        stamped = [self._stamped(group, env.env_id, self._items.claim()) for group in groups]
        self._counters.kept += len(groups)
        single = isinstance(scored, Mapping)
        try:
            body = encode(stamped[0] if single else stamped)
        except orjson.JSONEncodeError as error:
            refusals = [f"it cannot be written as JSON: {error}"] * len(groups)
        else:
            try:
                response = await self._post("/scored_data" if single else "/scored_data_list", body)
            except httpx.HTTPError:
                self._items.not_sent("undelivered")
                raise
            refusals = _refusals(response, len(groups))
        if len(refusals) == len(groups):
            self._items.not_sent("refused")
        self._counters.accepted += len(groups) - len(refusals)
        env.max_num_workers -= len(groups) - len(refusals)  # until the next status, which has counted them
        for refusal in refusals:
            self._was_refused(refusal)
            self._reports.lost("group", "refused", refusal)

    def _stamped(self, group: Mapping[str, Any], env_id: int, claim: Mapping[str, object]) -> dict[str, Any]:
        """With who sent it: `env_id` is the trajectory API's number, `environment` the one that people know."""
        told = {**(group.get("group_overrides") or {}), "environment": self._index, **claim}
        return {**group, "env_id": env_id, "group_overrides": told}

    def _was_refused(self, reason: str) -> None:
        if self._counters.was_refused(1, reason):  # each kind is logged once, and counted in `/status`
            logger.warning("the trajectory API refused a group (%s)", reason)
        if self._counters.hopeless:
            self._give_up(EnvironmentLostError(f"the trajectory API refuses every group ({reason})"))

    async def _post(self, path: str, body: bytes) -> httpx.Response:
        """A retry carries the key of the first: the API may have stored the groups, and only its answer was lost."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        if len(body) >= GZIP_FROM_BYTES:
            body, headers["Content-Encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        return await post_until_answered(self._client, path, body, headers)


async def post_until_answered(
    client: httpx.AsyncClient,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    retry_seconds: float = RETRY_SECONDS,
) -> httpx.Response:
    """Post JSON, again for `retry_seconds` while the API is unavailable, and as long as its disk is full. Raises
    httpx.TransportError if it stays away.
    """
    give_up_at = running_seconds() + retry_seconds
    while True:
        sent_at = running_seconds()
        try:
            response = await client.post(path, content=body, headers={"Content-Type": "application/json", **headers})
        except httpx.TransportError:
            if running_seconds() > give_up_at:
                raise
        else:
            if response.status_code == NO_SPACE_STATUS:
                give_up_at = running_seconds() + retry_seconds
            else:
                give_up_at += running_seconds() - sent_at  # it held the request, and was not down
                if not response.is_server_error or running_seconds() > give_up_at:
                    return response
        await asyncio.sleep(REPEAT_AFTER_SECONDS)


def _refusals(response: httpx.Response, groups: int) -> list[str]:
    """A sentence for each group that was refused. The good groups of a list are accepted even if others are bad."""
    if not response.is_success:
        return [f"{response.status_code}: {response.text[:300]}"] * groups
    return [str(refusal) for refusal in response.json().get("refused", [])]
