"""The trainer's lease at the trajectory API, and what it learns from it about the environment."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Never, TypeVar

from rl_contract.processes import TRAINER_LOST, ReportedState
from tinker_atropos.errors import EnvironmentLostError, InternalError, SilenceError
from tinker_atropos.held_connection import HeldConnection
from tinker_atropos.running_time import RunningEventLoop, running_seconds
from tinker_atropos.trainer.trajectories.api_client import ApiClient, Peer

HEARTBEAT_SECONDS = 1.0
LAST_HEARTBEAT_SECONDS = 0.1
"""The same at the end, when only the environment is waited for."""


T = TypeVar("T")


class TrainerLease:
    """Renewed every second by `keep`; `state` may change at any time and is sent with the next heartbeat. `on_peer`
    hears what is known of the environments each time. `why_paused` says why nothing is sampled or trained meanwhile,
    and environments wait for longer.
    """

    def __init__(
        self,
        api: ApiClient,
        on_peer: Callable[[Peer], None] = lambda _: None,
        why_paused: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._api = api
        self._why_paused = why_paused
        self._on_peer = on_peer
        self._news = asyncio.Event()
        self._pause = HEARTBEAT_SECONDS
        self._beats: _Beats | None = None
        self.state: ReportedState = "starting"
        self._reason: str | None = None
        self.peer = Peer()

    async def keep(self) -> Never:
        """In a thread with its own event loop: a step that blocks this one for a minute is slow, not lost.

        Raises InternalError when the api is gone, or no longer knows the run; SilenceError when it does not answer.
        """
        loop, self._beats = asyncio.get_running_loop(), _Beats(self._api.twin())
        try:
            await self._beats.call(self._beat(self._beats, loop))
        finally:
            beats, self._beats = self._beats, None
            await beats.close()

    async def _beat(self, beats: "_Beats", loop: asyncio.AbstractEventLoop) -> Never:
        while True:
            await beats.held.keep()
            peer = await self._renew_in_turn(beats)
            loop.call_soon_threadsafe(self._heard, peer)
            await asyncio.sleep(self._pause)

    async def end(self, state: ReportedState, reason: str | None) -> None:
        """The final report: `done` or `failed`, with the reason that the environment will log."""
        self.state, self._reason = state, reason
        beats = self._beats
        self._heard(await (beats.call(self._renew_in_turn(beats)) if beats else self._renew(self._api)))

    async def environment_lost(self) -> Never:
        """Wait until the environment ends before training does; raises EnvironmentLostError with the reason."""
        peer = await self._until(lambda peer: peer.state in ("done", "failed", "lost"))
        reasons = {
            "done": "the environment ended before the training was done" + (f": {peer.reason}" if peer.reason else ""),
            "failed": f"the environment failed: {peer.reason or 'it gave no reason'}",
            "lost": f"the environment fell silent: {peer.reason or 'no heartbeat'}",
        }
        silent = peer.state == "lost" or (peer.reason or "").startswith(TRAINER_LOST)
        raise (SilenceError if silent else EnvironmentLostError)(reasons[peer.state])

    async def environment_finished(self, seconds: float, seconds_if_absent: float) -> Peer:
        """Wait for the environment to end after training; gives up after `seconds` (sooner if it never started)."""
        self._pause = LAST_HEARTBEAT_SECONDS
        started = running_seconds()

        def over(peer: Peer) -> bool:
            waited = running_seconds() - started
            return peer.state in ("done", "failed", "lost") or (peer.state == "absent" and waited >= seconds_if_absent)

        try:
            return await asyncio.wait_for(self._until(over), seconds)
        except TimeoutError:
            return self.peer

    async def _renew_in_turn(self, beats: "_Beats") -> Peer:
        async with beats.turn:  # nothing may overtake the last report
            return await self._renew(beats.api)

    async def _renew(self, api: ApiClient) -> Peer:
        state = self.state
        answer = await api.renew_lease(state, self._reason or self._why_paused())
        if state == "working" and answer.total_steps is None:
            raise InternalError(
                "the trajectory API came back with an empty journal: it lost the registration and every group that "
                "waited there; keep its --data folder as long as the attempt lives"
            )
        return answer.peer

    def _heard(self, peer: Peer) -> None:
        self.peer = peer
        self._on_peer(peer)
        self._news.set()
        self._news = asyncio.Event()

    async def _until(self, condition: Callable[[Peer], bool]) -> Peer:
        while not condition(self.peer):
            await self._news.wait()
        return self.peer


class _Beats:
    """An event loop in its own thread, and the client that belongs to it."""

    def __init__(self, api: ApiClient) -> None:
        self.api, self.held, self.turn = api, HeldConnection(api.url, "/rl/lease/trainer"), asyncio.Lock()
        self._loop = RunningEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def close(self) -> None:
        await self.call(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _disconnect(self) -> None:
        self.held.close()
        await self.api.close()
