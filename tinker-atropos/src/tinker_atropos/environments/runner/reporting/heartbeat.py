"""The environment's companion: it holds the lease, forwards metrics and serves the ops port.

It has its own thread and event loop. An environment whose reward blocks its event loop for a minute is slow, not
lost.
"""

import asyncio
import contextlib
import functools
import logging
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
from prometheus_client import CollectorRegistry, Gauge
from starlette.types import ASGIApp

from rl_contract.env_vars import RL_OPS_PORT
from rl_contract.processes import NO_SPACE_STATUS, ReportedState
from tinker_atropos.environments.rollout.rollouts import FAILURE_KINDS
from tinker_atropos.environments.runner.reporting.counters import FAILURE_REASONS, FILTER_REASONS
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutSender
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.errors import InternalError, RunError
from tinker_atropos.held_connection import SILENT_SECONDS, HeldConnection
from tinker_atropos.running_time import RunningEventLoop, running_seconds
from tinker_atropos.serving import bind, ops_app, serve
from tinker_atropos.settings import Settings

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
TTL_SECONDS = 15
SILENCE_SECONDS = 60.0
"""How long the trajectory API may be unreachable, after its first answer, before the environment gives up."""

TELL_SECONDS = 5.0
END_SECONDS = 10.0
END_RETRY_SECONDS = 0.3
ROLLOUTS_SECONDS = 3.0
"""For the last rollouts that are only shown."""

ANSWERS_SECONDS = 30.0
"""For the answers of an evaluation, which its result waits for."""

PROMETHEUS_COUNTS = ("made", "kept", "filtered", "failed", "accepted", "refused")


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What the trajectory API knows about the run."""

    run_over: bool
    trainer_state: str
    reason: str | None
    evaluated_step: int | None = None
    environment_state: str | None = None
    steps_trained: int = 0

    @property
    def training_done(self) -> bool:
        """Whether the run is over because everything is trained, not because the trainer is gone."""
        return self.run_over and self.trainer_state in ("starting", "working", "done")

    @property
    def paused(self) -> bool:
        """Whether the trainer waits for its backend, and says since when."""
        return not self.run_over and self.trainer_state in ("starting", "working") and self.reason is not None

    @property
    def why(self) -> str:
        if self.training_done:
            return "training is done"
        return f"the trainer is {self.trainer_state}" + (f": {self.reason}" if self.reason else "")


class Heartbeat:
    """Started with `heartbeat_running`. `answer` is the answer to the last heartbeat, `seconds_paused` how long the
    backend has let the trainer wait so far.

    The first answer may take `first_answer_seconds`: in its own pod, an environment may be running before the name of
    the trainer's pod resolves, and before that pod listens.
    """

    def __init__(
        self,
        settings: Settings,
        shared: SharedState,
        on_end: Callable[[RunError | None], None],
        first_answer_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.answer: HeartbeatAnswer | None = None
        self.seconds_paused = 0.0
        self.lease_id = uuid.uuid4().hex
        self._index = settings.environment_index or 0
        self._replaced = settings.environment_index is not None
        self._first_answer_seconds = first_answer_seconds
        self._shared = shared
        self._on_end = on_end
        self._api = str(settings.api_address)
        self._client = httpx.AsyncClient(base_url=settings.api_url, timeout=5.0, trust_env=False)
        self._rollouts = RolloutSender(settings.inference_url, shared.rollouts, self._index)
        self._last_answer_at = running_seconds()
        self._frozen_at = 0.0  # when the api last took a request, and did not answer it
        self._closing = asyncio.Event()
        self._sending = asyncio.Lock()
        self._loop = RunningEventLoop()
        self._held = HeldConnection(settings.api_url, f"/rl/lease/environment?id={self.lease_id}")
        self._listener = bind(settings.ops_host, settings.ops_port, RL_OPS_PORT)
        self._thread = threading.Thread(target=self._run, args=(self._listener,), name="attendant", daemon=True)
        self._thread.start()

    async def tell(self) -> None:
        """Send what is pending immediately, because this process may be gone a second later. Never raises; what is not
        accepted within TELL_SECONDS is sent with the next heartbeats.
        """
        told = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._report(), self._loop))
        await asyncio.wait({told}, timeout=TELL_SECONDS)
        if told.done() and (error := told.exception()):
            logger.info("the trajectory API gets it a second later: %r", error)

    async def tell_answers(self) -> None:
        """Send the rollouts that wait, for at most ANSWERS_SECONDS. An evaluation's result comes after its answers:
        with the last one the trainer ends, and keeps nothing more. Never raises.
        """
        sent = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._rollouts.send(), self._loop))
        await asyncio.wait({sent}, timeout=ANSWERS_SECONDS)

    async def conclude(self, state: ReportedState, reason: str | None = None) -> None:
        """Deliver the remaining metrics, then report how it ended. Tries for at most 10 s; never raises."""
        self._shared.lease_state, self._shared.reason = state, reason
        sent = asyncio.run_coroutine_threadsafe(self._report_the_end(), self._loop)
        try:
            await asyncio.wrap_future(sent)
        except (TimeoutError, httpx.HTTPError) as error:
            logger.warning("the trajectory API was not told that the environment is %s: %r", state, error)

    async def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        await asyncio.to_thread(self._thread.join, 5)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._attend(listener))

    async def _attend(self, listener: socket.socket) -> None:
        # `aclosing`, not `async with` the client: an end reported immediately may already have opened it.
        reporting = asyncio.ensure_future(self._rollouts.keep_sending())
        async with serve(self._ops_app(), listener), contextlib.aclosing(self._client):
            while not self._closing.is_set():
                await self._held.keep()
                try:
                    await self._report()
                except httpx.HTTPError as error:
                    self._check_silence(error)
                except Exception:  # the edge of the loop: a bug in it must not cost the lease
                    logger.exception("the attendant stumbled")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), BEAT_SECONDS)
        self._held.close()
        reporting.cancel()
        await asyncio.wait({reporting})

    async def _report(self) -> None:
        async with self._sending:  # one at a time: nothing may overtake the last state
            await self._beat()
            await self._pass_metrics_on()

    async def _report_the_end(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rollouts.send(), ROLLOUTS_SECONDS)
        async with asyncio.timeout(END_SECONDS), self._sending:
            while True:
                try:
                    await self._pass_metrics_on()  # first: after the last state the trainer no longer reads metrics
                    return await self._beat()
                except httpx.HTTPError as error:  # no heartbeat follows that would repeat the last report
                    logger.info("telling the trajectory API how the environment ended is tried again: %r", error)
                    await asyncio.sleep(END_RETRY_SECONDS)

    async def _beat(self) -> None:
        shared = self._shared
        whose = {"id": self.lease_id, "index": self._index, "replaced": self._replaced}
        lease = {"state": shared.lease_state, "reason": shared.lease_reason, "ttl_seconds": TTL_SECONDS}
        said = {"warnings": shared.warnings, "environment_state": shared.environment_state}
        response = await self._client.put("/rl/lease/environment", json=lease | whose | said)
        if response.status_code == NO_SPACE_STATUS:  # the lease counts, though it is not written yet
            self._last_answer_at = running_seconds()
        if response.is_error:
            refused = f"HTTP {response.status_code}: {response.text[:300]}"
            raise httpx.HTTPStatusError(refused, request=response.request, response=response)
        body = response.json()
        self.answer = HeartbeatAnswer(
            body["run_over"],
            body["peer"]["state"],
            body["peer"]["reason"],
            body.get("evaluated_step"),
            body.get("environment_state"),
            body.get("current_step", 0),
        )
        before, self._last_answer_at = self._last_answer_at, running_seconds()
        self.seconds_paused += self._last_answer_at - before if self.answer.paused else 0.0
        if self.answer.run_over:
            self._on_end(None)

    async def _pass_metrics_on(self) -> None:
        queue = self._shared.metrics
        queue.put(self._shared.counters.take_metrics(), self._shared.step, "runner")
        while queue.records:
            record = queue.records[0].to_wire() | {"environment": self._index}
            response = await self._client.post("/rl/metrics", json=record)
            if response.is_server_error:
                response.raise_for_status()
            queue.records.popleft()
            if response.is_client_error:
                logger.warning("the trajectory API refused metrics (%d): %s", response.status_code, response.text[:300])

    def _check_silence(self, error: httpx.HTTPError) -> None:
        now, frozen = running_seconds(), isinstance(error, httpx.TimeoutException) and self._held.open
        if frozen:
            self._frozen_at = now
        silent_for = now - (self._last_answer_at if frozen else max(self._last_answer_at, self._frozen_at))
        patience = SILENCE_SECONDS if self.answer else max(SILENCE_SECONDS, self._first_answer_seconds)
        if silent_for > (max(patience, SILENT_SECONDS) if frozen else patience):
            self._on_end(
                InternalError(f"the trajectory API at {self._api} did not answer for {silent_for:.0f} s: {error!r}")
            )

    def _ops_app(self) -> ASGIApp:
        registry, counters = CollectorRegistry(), self._shared.counters
        groups = Gauge("rl_environment_groups", "Groups by what became of them.", ["outcome"], registry=registry)
        for outcome in PROMETHEUS_COUNTS:
            groups.labels(outcome).set_function(functools.partial(getattr, counters, outcome))
        lost = Gauge("rl_environment_groups_lost", "Groups that were not sent, by why.", ["reason"], registry=registry)
        for reason in FILTER_REASONS:
            lost.labels(reason).set_function(functools.partial(counters.filtered_by.__getitem__, reason))
        for failure in FAILURE_REASONS:
            lost.labels(failure).set_function(functools.partial(counters.failed_by.__getitem__, failure))
        failed = Gauge(
            "rl_environment_rollouts_failed", "Rollouts without a score, by why.", ["kind"], registry=registry
        )
        for kind in FAILURE_KINDS:
            failed.labels(kind).set_function(functools.partial(counters.rollouts.failed_by.__getitem__, kind))
        return ops_app(self._shared.unready, self._shared.to_wire, registry=registry)


@contextlib.asynccontextmanager
async def heartbeat_running(
    settings: Settings,
    shared: SharedState,
    on_end: Callable[[RunError | None], None],
    first_answer_seconds: float = SILENCE_SECONDS,
) -> AsyncIterator[Heartbeat]:
    """A heartbeat while the block runs. `on_end` is called in its thread: with None when the run is over."""
    heartbeat = Heartbeat(settings, shared, on_end, first_answer_seconds)
    try:
        yield heartbeat
    finally:
        await heartbeat.close()
