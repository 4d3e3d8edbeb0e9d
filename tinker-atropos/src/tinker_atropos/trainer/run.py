"""One attempt at a run, from the first look at the backend to the last word at the trajectory API."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, Never

from tinker_atropos.config import RunConfig
from tinker_atropos.errors import RunError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.api_client import ApiClient, Registration
from tinker_atropos.trainer.checkpoints import checkpoint_metadata, checkpoint_name
from tinker_atropos.trainer.generation import Generator
from tinker_atropos.trainer.lease import Lease
from tinker_atropos.trainer.ledger import Ledger
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.opening import Opened, open_training
from tinker_atropos.trainer.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.relay import Relay
from tinker_atropos.trainer.result_file import ResultFile
from tinker_atropos.trainer.rollouts import Group, Ints
from tinker_atropos.trainer.status import Phase, RunStatus, console_line
from tinker_atropos.trainer.stopping import StopRequest, beside, forever, unless_stopped
from tinker_atropos.trainer.wandb_sink import WandbSink

logger = logging.getLogger(__name__)

STEP_GRACE_SECONDS = 12.0
"""How long a step in progress may take to end after a stop was asked: save and farewell fit in 25 s with it."""

SAVE_GRACE_SECONDS = 9.0
EVALUATION_SECONDS = 1800.0
"""Longest wait for the environment's final evaluation."""

FAREWELL_SECONDS = 2.0
ABSENT_SECONDS = 10.0
"""How long to wait at the end for an environment that never held a lease (one without our runner)."""

STOPPED_REASON = "the run was stopped on request"


class Run:
    """Everything one attempt shares. The loop sees it through `loop.Surroundings`."""

    def __init__(
        self,
        settings: Settings,
        config: RunConfig,
        results: ResultFile,
        sink: WandbSink,
        stop: StopRequest,
        *,
        vocabulary: int,
    ) -> None:
        self._settings = settings
        self._config = config
        self._results = results
        self._sink = sink
        self._stop = stop
        self._vocabulary = vocabulary
        self._opened: Opened | None = None
        self._saved_step = 0
        self._ledger = Ledger()
        self._policy = CurrentPolicy()
        self._waiting_for: str | None = "the trainer waits for its backend"
        self.api = ApiClient(settings.api_url)
        self.lease = Lease(self.api)
        self.status = RunStatus(total_steps=config.env.total_steps)
        self.generator = Generator(self._policy, self._ledger, on_failure=self._fail)
        self._relay = Relay(self.api, self.status, sink)
        self._failure: asyncio.Future[Never] = asyncio.get_running_loop().create_future()

    def unready(self) -> str | None:
        """Why the trainer is not ready, or None."""
        return self._waiting_for

    async def attempt(self, base_url: str | None, probe_T: Ints) -> None:
        """Train to the end, or until asked to stop. Raises the RunError that ended it otherwise.

        A lost environment or api ends the loop at a step boundary, a failed sample at once: the backend is gone.
        """
        watched = (self.lease.keep(), self._relay.keep(), self.lease.environment_lost())
        work = self._attempt(base_url, probe_T)
        await beside(work, self._failed(), *(self._stop_when_it_fails(companion) for companion in watched))

    async def _attempt(self, base_url: str | None, probe_T: Ints) -> None:
        opening = open_training(self._settings, self._config, base_url, probe_T)
        self._opened = await unless_stopped(opening, self._stop)
        if self._opened is not None:
            await self._begin(self._opened)
            abandoned = await self._train(self._opened)
            if self._complete:
                await self._conclude()
                return
            await self._save_what_was_trained(abandoned=abandoned)
        if self._stop.cause is not None:
            raise self._stop.cause
        self._results.write(outcome="stopped", steps_trained=self._saved_step)
        await self._farewell("done", STOPPED_REASON)

    @property
    def _complete(self) -> bool:
        """All steps are trained and the final weights are saved."""
        return self._opened is not None and self._saved_step == self.status.total_steps

    async def _begin(self, opened: Opened) -> None:
        """The first sample came back: serve inference, register, and say so."""
        self.status.step = self._saved_step = opened.step
        self.status.training_run_id = opened.training.run_id
        self.generator.context_length = opened.context_length
        self._policy.swap(Policy(opened.step, opened.sampler))
        self._waiting_for = "the trainer waits for the trajectory API"
        await unless_stopped(self.api.register(self._registration(opened.step)), self._stop)
        self._waiting_for = None
        self.lease.state = "working"
        self._results.write(
            steps_trained=opened.step,
            training_run_id=opened.training.run_id,
            state_path=opened.resumed.path if opened.resumed else None,
        )
        logger.info("ready: training run %s, step %d", opened.training.run_id, opened.step)

    def _registration(self, step: int) -> Registration:
        env, tinker = self._config.env, self._config.tinker
        return Registration(
            batch_size=env.batch_size,
            max_token_len=tinker.max_token_trainer_length,
            num_steps=env.total_steps,
            starting_step=step,
            save_checkpoint_interval=tinker.save_checkpoint_interval,
            checkpoint_dir=tinker.checkpoint_dir,
            wandb_project=tinker.wandb_project or "",
            wandb_group=tinker.wandb_group or "",
            max_staleness=tinker.max_staleness,
            vocabulary=self._vocabulary,
        )

    async def _train(self, opened: Opened) -> bool:
        """Run the loop to its end or to the first step boundary after a stop; true when a step was abandoned."""
        loop = train(
            self,
            training=opened.training,
            policy=self._policy,
            ledger=self._ledger,
            config=self._config.tinker,
            steps=range(opened.step, self.status.total_steps),
        )
        training = asyncio.ensure_future(loop)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({training, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.asked:
                self.generator.closed_because = "the trainer is stopping"
            await asyncio.wait({training}, timeout=self._grace(STEP_GRACE_SECONDS))
            if training.done():
                training.result()
                return False
            return True
        finally:
            stopping.cancel()
            training.cancel()
            await asyncio.gather(stopping, training, return_exceptions=True)

    # What the loop asks of its surroundings.

    async def next_groups(self) -> list[Group] | None:
        while True:
            batch = await unless_stopped(self.api.batch(self.status.step), self._stop)
            if self._stop.asked:
                return None
            if batch:
                return [Group.from_wire(group) for group in batch.groups]

    def enter(self, phase: Phase) -> None:
        self.status.phase = phase

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        self.status.step_trained(step, seconds, metrics)
        self._sink.log(step, metrics)
        logger.info("%s", console_line(step, self.status.total_steps, metrics))
        await self.api.report_progress(step, done=False)

    async def save(self, step: int) -> None:
        """Save a state checkpoint, and the sampler weights with the last one."""
        assert self._opened is not None
        training = self._opened.training
        name = checkpoint_name(self._settings.attempt, step)
        metadata = checkpoint_metadata(self._settings.run_uid, self._settings.attempt, step)
        state_path = await training.save_state(name, metadata)
        last = step == self.status.total_steps
        sampler_path = await training.save_sampler(name, metadata) if last else None
        self._saved_step = step
        self.status.checkpoint = {"step": step, "statePath": state_path}
        self._results.write(
            steps_trained=step, state_path=state_path, sampler_path=sampler_path, metrics=dict(self.status.metrics)
        )

    # How it ends.

    async def _conclude(self) -> None:
        """Let the environment evaluate the final weights, as far as it can, then say that the run succeeded."""
        self.status.phase = "done"
        try:
            await self.api.report_progress(self.status.total_steps, done=True)
            logger.info("training is done; the environment evaluates the final weights")
            await unless_stopped(self.lease.environment_finished(EVALUATION_SECONDS, ABSENT_SECONDS), self._stop)
            await self._relay.collect()
        except RunError as error:
            logger.warning("the final evaluation is lost: %s", error)
        self._results.write(outcome="succeeded", metrics=dict(self.status.metrics))
        await self._farewell("done", None)

    async def _save_what_was_trained(self, *, abandoned: bool) -> None:
        if self.status.step > self._saved_step and not abandoned:
            self.status.phase = "saving"
            try:
                await asyncio.wait_for(self.save(self.status.step), self._grace(SAVE_GRACE_SECONDS))
            except (RunError, TimeoutError) as error:
                logger.warning("the last %d steps are lost: %s", self.status.step - self._saved_step, error)

    def _grace(self, seconds: float) -> float | None:
        """Who asks for a stop waits for it only so long; without asking, the backend's deadline is bound enough."""
        return seconds if self._stop.asked and self._stop.cause is None else None

    async def fail(self, error: RunError) -> None:
        """Tell the environment why the run is over."""
        await self._farewell("failed", str(error))

    async def _farewell(self, state: Literal["done", "failed"], reason: str | None) -> None:
        """The last word to the environment and the backend. Neither is waited for long."""
        with contextlib.suppress(TimeoutError, RunError):
            await asyncio.wait_for(self.lease.end(state, reason), FAREWELL_SECONDS)
        if self._opened is not None:
            await self._opened.backend.close("success" if state == "done" else "errored")

    def _fail(self, error: RunError) -> None:
        """Inference met an error after which nothing can be sampled: only a complete run survives it."""
        if self._complete:
            self._stop.ask(error)
        elif not self._failure.done():
            self._failure.set_exception(error)

    async def _failed(self) -> Never:
        await asyncio.shield(self._failure)

    async def _stop_when_it_fails(self, companion: Coroutine[Any, Any, Never]) -> Never:
        try:
            await companion
        except RunError as error:
            self._stop.ask(error)
        await forever()
