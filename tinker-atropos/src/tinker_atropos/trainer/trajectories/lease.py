"""The trainer's lease at the trajectory API, and what it learns from it about the environment."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Never

from rl_contract.processes import TRAINER_LOST, ReportedState
from tinker_atropos.errors import EnvironmentLostError, InternalError, SilenceError
from tinker_atropos.held_connection import HeldConnection
from tinker_atropos.running_time import running_seconds
from tinker_atropos.trainer.trajectories.api_client import ApiClient, Peer

HEARTBEAT_SECONDS = 1.0
LAST_HEARTBEAT_SECONDS = 0.1
"""The same at the end, when only the environment is waited for."""


@dataclass
class TrainerLease:
    """Renewed every second by `keep`; `state` may change at any time and is sent with the next heartbeat. `on_peer`
    hears what is known of the environments each time. `why_paused` says why nothing is sampled or trained meanwhile,
    and environments wait for longer.
    """

    api: ApiClient
    on_peer: Callable[[Peer], None] = lambda _: None
    why_paused: Callable[[], str | None] = lambda: None
    state: ReportedState = "starting"
    peer: Peer = field(default_factory=Peer)
    _reason: str | None = None
    _pause: float = HEARTBEAT_SECONDS
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _renewed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def keep(self) -> Never:
        """A step that blocks the event loop for a minute is slow, not lost: the held connection says so.

        Raises InternalError when the api is gone, or no longer knows the run; SilenceError when it does not answer.
        """
        held = HeldConnection(self.api.url, "/rl/lease/trainer")
        try:
            while True:
                await held.keep()
                await self._renew()
                await asyncio.sleep(self._pause)
        finally:
            held.close()

    async def end(self, state: ReportedState, reason: str | None) -> None:
        """The final report: `done` or `failed`, with the reason that the environment will log."""
        self.state, self._reason = state, reason
        await self._renew()

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

    async def _renew(self) -> None:
        async with self._turn:  # nothing may overtake the last report
            state = self.state
            answer = await self.api.renew_lease(state, self._reason or self.why_paused())
        if state == "working" and answer.total_steps is None:
            raise InternalError(
                "the trajectory API came back with an empty journal: it lost the registration and every group that "
                "waited there; keep its --data folder as long as the attempt lives"
            )
        self.on_peer(answer.peer)
        async with self._renewed:
            self.peer = answer.peer
            self._renewed.notify_all()

    async def _until(self, condition: Callable[[Peer], bool]) -> Peer:
        async with self._renewed:
            await self._renewed.wait_for(lambda: condition(self.peer))
            return self.peer
