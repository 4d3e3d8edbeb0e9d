"""The trajectory API's word on its queue: how much room there is, and how often it is asked.

Nothing signals that the queue has drained. So the API is asked again and again, which must not cost much while an
environment has nothing to do, and not delay it when it has.
"""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import aiohttp

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
        self._answer: Mapping[str, Any] | None = None
        self._since = 0.0

    async def next_event(self, answer: Mapping[str, Any], work: set[asyncio.Task[Any]]) -> None:
        """Wait until some of the work ends, or for a pause after the last answer."""
        pause = self.pause(answer)
        if work:
            await asyncio.wait(work, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(pause)

    def pause(self, answer: Mapping[str, Any]) -> float:
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
    from atroposlib.envs.base import BaseEnv  # this module is imported before atroposlib may be

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


def has_room(env: Any) -> bool:
    """Whether there is room for more groups than are queued and in flight.

    Checked first because BaseEnv.add_train_workers cancels rollouts if a group is briefly counted as both.
    """
    room = env.config.max_batches_offpolicy * env.derived_batch_size // env.config.group_size
    in_flight = len(env.workers)
    return bool(in_flight < env.max_num_workers and env.status_dict["queue_size"] + in_flight < room)


def respect_room(env: Any) -> None:
    """No more groups in flight than the run still needs: `room`, in rollouts, is an extension of `/status-env`.

    The last group may exceed it: otherwise a room smaller than a group would never be used. BaseEnv resets the limit of
    workers with each status, and `has_room` does not cancel those in flight.
    """
    room = env.status_dict.get("room")
    if room is not None:
        env.max_num_workers = min(env.max_num_workers, math.ceil(room / env.config.group_size))
