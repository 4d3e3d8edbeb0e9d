"""An environment in its process, once that is prepared: it is loaded, connected to the run, served and closed.

The serve loop replaces BaseEnv.env_manager, so `super().env_manager()` in an author's file runs it.

It calls the same methods in the same order. What differs, and why:
* no pause of 5 s before the first rollout: the trainer is known to be ready;
* it wakes up when a group is finished, not every 0.1 s, and asks for the queue's status less often while that stays
  the same, on a connection that is kept (`reporting/api_requests.py`);
* it starts no more groups than the run still needs (`room` of `/status-env`);
* rollouts in flight may finish when the queue is full: they are paid for;
* it ends when the run is over, not when enough groups are queued, and then evaluates the final weights;
* evaluations are the runner's (`evaluations.py`): at step 0, every `steps_per_eval` steps, and at the end; none if that
  is 0. Of several environments only one evaluates; a process that replaces it does not repeat the first evaluation, and
  makes the last one even if training was done before it could start.

What an environment goes on from after a lost attempt is reported with heartbeats, and kept by the trainer beside the
weights of each checkpoint. Environments of our own base class may have one (`saved_state`); all others have none.
"""

import asyncio
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from rl_contract.processes import EVALUATOR
from tinker_atropos.environments.base import SampledEnvironment, draws_items
from tinker_atropos.environments.items.grader_check import warnings_about_grader
from tinker_atropos.environments.items.item_warnings import TOO_SLOW_TO_SKIP, warnings_about_items
from tinker_atropos.environments.rollout.failures import describe, environment_failed
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.runner import atropos_patches
from tinker_atropos.environments.runner.dealt_items import DealtItems
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations, PolicySnapshots, Reports
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_config import wired_to_run
from tinker_atropos.environments.runner.loading.environment_files import Assignment, Deadlines
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.environments.runner.policy_requests import kept_connections
from tinker_atropos.environments.runner.reporting.api_requests import (
    REQUEST_TIMEOUT,
    EnvironmentRegistration,
    GroupSender,
    StatusPolls,
    free_workers,
    kept_connection,
    respect_room,
)
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat
from tinker_atropos.environments.runner.reporting.items_under_way import ItemsUnderWay
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import LINGER_SECONDS, RunEnd
from tinker_atropos.errors import EnvironmentLostError, RunError
from tinker_atropos.running_time import running_seconds

logger = logging.getLogger(__name__)

SETUP_SECONDS = 600.0
"""Longest setup of an environment that only has the final weights to evaluate."""

LET_GO_SECONDS = 5.0
"""How long canceled work may take to end."""

LOOK_SECONDS = 0.5
"""How often it is looked at what an evaluation waits for."""

FAILING_AFTER = 4
"""This many failed groups in a row are what the environment is doing."""

SHOWN_CHARACTERS = 200
"""Of a failure."""

KIND_CHARACTERS = 100
"""Less than what is shown: where that is cut off depends on its numbers."""


@dataclass(slots=True)
class Rollouts:
    """The life cycle of one environment, from its setup to the end of the run."""

    shared: SharedState
    heartbeat: Heartbeat
    ending: RunEnd
    evaluations: Evaluations
    deadlines: Deadlines
    registration: EnvironmentRegistration
    items: DealtItems
    source: Path
    finished: bool = False
    _polls: StatusPolls = field(default_factory=StatusPolls)
    _steps_per_eval: int = 0
    _evaluated_at: int = 0
    _no_item_since: float | None = None

    async def serve(self, env: Any) -> None:
        """Make rollouts until the run is over; then evaluate the result.

        Raises EnvironmentLostError if the environment fails, InternalError if the trainer never starts.
        """
        pausing = asyncio.create_task(WORKING_TIME.follow(lambda: self.heartbeat.seconds_paused), name="pauses")
        try:
            await self._serve(env)
        finally:
            pausing.cancel()
        self.finished = True

    async def _serve(self, env: Any) -> None:
        life = asyncio.create_task(self._live(env), name="rollouts")
        await asyncio.wait({life, self.ending.settled}, return_when=asyncio.FIRST_COMPLETED)
        if self.shared.lease_state == "starting" and self._final_evaluation_due:
            await asyncio.wait({life}, timeout=SETUP_SECONDS)  # it sets up, and makes no rollouts
        running = self.evaluations.running
        await _let_go({life, *env.workers} | ({running} if running else set()))
        await self.items.report_last()
        for ended in (life, self.ending.settled):
            if ended.done() and not ended.cancelled():
                ended.result()  # raises what went wrong
        answer = self.heartbeat.answer
        logger.info("the run is over: %s", answer.why if answer else "the trajectory API is silent")
        if self.shared.lease_state == "working" and self._final_evaluation_due:
            await self._evaluate(env, self.heartbeat.answer.steps_trained if self.heartbeat.answer else 0)

    async def _live(self, env: Any) -> None:
        try:
            self.shared.phase = "setting up"
            await env.setup()
            self.shared.phase = "waiting for the trainer to start"
            checking = asyncio.create_task(self._check(env), name="check")
            await self.registration.register(env, self.deadlines.trainer)
            await env.get_server_info()
            await self._restore_state(env)
            await checking
            self.shared.lease_state, self.shared.step = "working", min(env.curr_step, self.shared.total_steps)
            self._steps_per_eval, env.config.steps_per_eval = env.config.steps_per_eval, 0  # BaseEnv starts none itself
            if self.ending.settled.done():
                return  # ready for the final evaluation, the only remaining work
            self._evaluated_at = env.curr_step
            async with kept_connection(env):
                if self._steps_per_eval > 0 and env.curr_step == 0 and not self._baseline_known:
                    await self._first_evaluation(env)
                await self._roll_out(env)
        except RunError:
            raise
        except (Exception, SystemExit) as error:
            # The environment's own code runs in here: whatever it raises is its own failure, reported in one sentence.
            raise environment_failed(f"while {self.shared.phase}", error, self.source) from error

    async def _restore_state(self, env: Any) -> None:
        """Called once the trainer has registered: it knows the checkpoint that training continues from."""
        if not isinstance(env, SampledEnvironment):
            return
        await self.heartbeat.tell()  # the last answer may be older than the trainer's registration
        if state := self.heartbeat.answer and self.heartbeat.answer.environment_state:
            logger.info("continuing with the environment's state %s", state)
            env.restore_state(state)

    async def _check(self, env: Any) -> None:
        """While the trainer starts. Raises ConfigError."""
        draws, groups = draws_items(type(env)), env.config.batch_size // env.config.group_size
        epoch_size = None if draws else env.order.epoch_size
        self.shared.item_warnings += warnings_about_items(draws_items=draws, epoch_size=epoch_size, groups=groups)
        if isinstance(env, SampledEnvironment):
            env.check_config()
            self.shared.grader_warnings = await warnings_about_grader(env, self.source)

    @property
    def _evaluates(self) -> bool:
        return self.registration.index == EVALUATOR

    @property
    def _baseline_known(self) -> bool:
        """Whether an earlier environment process has evaluated, and reported it."""
        answer = self.heartbeat.answer
        return answer is not None and answer.evaluated_step is not None

    @property
    def _final_evaluation_due(self) -> bool:
        """Whether training is done, and no earlier environment process has evaluated the result. Whether there are
        evaluations at all is known once it works.
        """
        answer = self.heartbeat.answer
        wanted = self._evaluates and (self._steps_per_eval > 0 or self.shared.lease_state == "starting")
        return wanted and answer is not None and answer.training_done and answer.evaluated_step != answer.steps_trained

    async def _first_evaluation(self, env: Any) -> None:
        """It is of the untrained policy, which groups would train meanwhile. The evaluating environment may report
        nothing, or never start: its groups, or the deadline, end the wait of the others.
        """
        if self._evaluates:
            await self._evaluate(env, 0)
            return
        self.shared.phase = "waiting for the first evaluation"
        give_up_at = WORKING_TIME.now() + self.evaluations.plan.deadline
        while not self._baseline_known and WORKING_TIME.now() < give_up_at:
            await env.get_status()
            if env.status_dict["current_step"] > 0:
                return
            await self._polls.next_event(env.status_dict, set())

    async def _evaluate(self, env: Any, step: int) -> None:
        """While no groups are made."""
        self.evaluations.begin(env, step)
        while _evaluating(env):
            await asyncio.wait({env.eval_runner}, timeout=LOOK_SECONDS)
            self.shared.phase = _wait_of(env) or f"evaluating step {step}"
            self.evaluations.release(env)
        await self.evaluations.wait(env)

    async def _roll_out(self, env: Any) -> None:
        """Keep the queue full until the trajectory API counts past the last step."""
        first_group_due = WORKING_TIME.now() + self.deadlines.first_group
        while True:
            self.shared.phase = phase_of(env, self.shared)
            accepted = self.shared.counters.accepted
            await env.get_status()
            step = env.status_dict["current_step"]
            if step > self.shared.total_steps:
                await self.heartbeat.tell()  # its answer says how the run ended
                await asyncio.wait({self.ending.settled}, timeout=LET_GO_SECONDS)
                return
            await env.env_step_checks()
            self.shared.step = step
            if isinstance(env, SampledEnvironment):
                self.shared.environment_state = env.saved_state()
            self.evaluations.release(env)
            self._start_due_evaluation(env, step)
            respect_room(env, self.shared.counters.accepted - accepted)
            if free_workers(env) > 0:
                await env.add_train_workers()
                self._check_items(idle=not work_of(env) and free_workers(env) > 0, now=running_seconds())
            self._drop_overdue(env)
            await self.items.report()
            self._check_first_group(first_group_due)
            await self._polls.next_event(env.status_dict, work_of(env))

    def _start_due_evaluation(self, env: Any, step: int) -> None:
        """Starts that of the newest step at which one is due, if training is not over: the last one is made then."""
        every = self._steps_per_eval
        due = self._evaluates and every > 0 and step // every > self._evaluated_at // every
        if due and not _evaluating(env) and step < self.shared.total_steps:
            self._evaluated_at = step
            self.evaluations.begin(env, step // every * every)

    def _drop_overdue(self, env: Any) -> None:
        """Give up on rollouts that take longer than `worker_timeout`, as BaseEnv does."""
        limit = env.config.worker_timeout
        if limit <= 0:
            return
        now = WORKING_TIME.now()  # what BaseEnv notes is by the clock, which jumps, and goes on during a pause
        for item_id, running in list(env.running_items.items()):
            if now - running.setdefault("seen_at", now) > limit:
                overdue = f"a rollout took longer than env.worker_timeout ({limit:g} s)"
                logger.warning("%s", overdue)
                running["worker"].cancel()
                env.workers.discard(running["worker"])
                env.running_items.pop(item_id)
                self.items.end(running.get("position"), "overdue")
                self.shared.counters.has_failed("overdue", overdue)
                self.shared.rollouts.lost("group", "overdue", overdue)
        if self.shared.counters.hopeless:
            raise EnvironmentLostError(f"the environment makes no groups: {self.shared.counters.last_failure}")

    def _check_items(self, *, idle: bool, now: float) -> None:
        """There is room, but nothing was started: `get_next_item` returned None, and BaseEnv would retry forever."""
        if not idle:
            self._no_item_since = None
            return
        self.shared.phase = "waiting for an item: get_next_item gives none"
        self._no_item_since = self._no_item_since or now
        if now - self._no_item_since > self.deadlines.next_item:
            raise EnvironmentLostError(
                f"get_next_item gave no item for {self.deadlines.next_item:.0f} s, and the run is not over: after the "
                f"last item it must begin again with the first"
            )

    def _check_first_group(self, due: float) -> None:
        if not self.shared.counters.accepted and WORKING_TIME.now() > due:
            raise EnvironmentLostError(f"{self.shared.unready()} within {self.deadlines.first_group:.0f} s")


def phase_of(env: Any, shared: SharedState) -> str:
    """While groups are made. It stays when failures differ only in their numbers."""
    if shared.counters.failures_in_row < FAILING_AFTER:
        return _wait_of(env) or "making rollouts"
    failure = (shared.counters.last_failure or "").partition("\n")[0]
    phase = f"making groups that all fail: {failure[:SHOWN_CHARACTERS]}"
    return shared.phase if _kind(phase) == _kind(shared.phase) else phase


def _kind(phase: str) -> str:
    return re.sub(r"\d+", "N", phase)[:KIND_CHARACTERS]


def _wait_of(env: Any) -> str | None:
    if WORKING_TIME.full_disks:
        return f"waiting for room on a disk: {WORKING_TIME.full_disks[0]}"
    lacking = getattr(env, "rollouts_wait_for", None)  # most environments never wait for anything
    return f"waiting for {lacking}" if lacking else None


def work_of(env: Any) -> set[asyncio.Task[Any]]:
    """Groups in the making, and the evaluation that goes on."""
    evaluating = [env.eval_runner] if _evaluating(env) else []
    return {*env.workers, *evaluating}


def _evaluating(env: Any) -> bool:
    return env.eval_runner is not None and not env.eval_runner.done()


async def _let_go(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, and wait briefly: what does not end by itself ends with the process."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=LET_GO_SECONDS)


async def serve(assignment: Assignment, shared: SharedState, heartbeat: Heartbeat, ending: RunEnd) -> None:
    """Raises RunError for what ends it."""
    settings, run = assignment.settings, assignment.run
    atropos_patches.list_token_ids()
    process_setup.seed_generators(run.tinker.seed)
    loaded = load_environment(assignment.located)
    env = loaded.build(run, wired_to_run(run, settings))
    index = settings.environment_index or 0
    registration = EnvironmentRegistration(settings.api_url, index)
    plan = EvaluationPlan(run.tinker.eval_deadline_seconds, run.tinker.eval_metric, run.tinker.seed)
    reports, snapshots = Reports(env, loaded.source), PolicySnapshots(settings.inference_url)
    evaluations = Evaluations(shared, heartbeat, reports, snapshots, plan)
    under_way = ItemsUnderWay(heartbeat.lease_id, in_order=run.tinker.max_staleness == 0)
    client = httpx.AsyncClient(base_url=settings.api_url, timeout=REQUEST_TIMEOUT, trust_env=False)

    def drawing_is_slow() -> None:
        shared.item_warnings.append(TOO_SLOW_TO_SKIP)
        process_setup.seed_generators(run.tinker.seed + 1 + index)  # else all processes draw the same

    dealt = DealtItems(env, under_way, client, index, on_give_up=drawing_is_slow)
    rollouts = Rollouts(
        shared, heartbeat, ending, evaluations, assignment.deadlines, registration, items=dealt, source=loaded.source
    )
    atropos_patches.widen_retries()
    atropos_patches.replace_env_manager(rollouts.serve)
    sender = GroupSender(
        settings.api_url, shared.counters, ending.settle, reports=shared.rollouts, index=index, items=under_way
    )
    async with kept_connections(env.server.servers):
        atropos_patches.AtroposPatches(
            env,
            loaded.source,
            shared.counters,
            sender,
            ending.settle,
            reports=shared.rollouts,
            max_all_right_replaced=run.tinker.most_all_right_replaced,
            seed=run.tinker.seed,
            items=under_way,
        )
        try:
            await _finish(env, rollouts, ending, loaded.source, plan)
        finally:
            if isinstance(env, SampledEnvironment):
                await _close(env, loaded.source)


async def _close(env: SampledEnvironment[Any], source: Path) -> None:
    try:
        await env.close()
    except Exception as error:  # noqa: BLE001 -- the author's code, and how the run ended says more
        logger.warning("closing the environment failed: %s", describe(error, source))


async def _finish(env: Any, rollouts: Rollouts, ending: RunEnd, source: Path, plan: EvaluationPlan) -> None:
    """Run the environment to its end, but no longer than the end of the run and the last evaluation allow."""

    async def manage() -> None:
        try:
            await env.env_manager()
        except RunError:
            raise
        except (Exception, SystemExit) as error:
            # An author may override env_manager: whatever it raises is the environment's failure.
            raise environment_failed("in env_manager", error, source) from error

    task = asyncio.create_task(manage(), name="env_manager")
    await asyncio.wait({task, ending.settled}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({task}, timeout=SETUP_SECONDS + plan.deadline + LINGER_SECONDS)
    if ending.settled.done():
        ending.settled.result()  # raises why the environment had to give up
    if not task.done():
        logger.warning("the run is over and the environment's env_manager does not return: leaving it")
        return
    await task
    if not (rollouts.finished or ending.settled.done()):
        raise EnvironmentLostError("the environment left early: its env_manager returned before the run was over")
