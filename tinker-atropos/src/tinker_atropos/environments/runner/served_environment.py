"""An environment in its process, once that is prepared: it is loaded, connected to the run, served and closed."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.rollout.failures import describe, environment_failed
from tinker_atropos.environments.runner import atropos_patches
from tinker_atropos.environments.runner.assignment import Assignment
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations, PolicySnapshots, Reports
from tinker_atropos.environments.runner.loading.environment_config import wired_to_run
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.environments.runner.policy_requests import kept_connections
from tinker_atropos.environments.runner.reporting.api_requests import EnvironmentRegistration
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat
from tinker_atropos.environments.runner.reporting.senders import GroupSender
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import LINGER_SECONDS, RunEnd
from tinker_atropos.environments.runner.serve_loop import SETUP_SECONDS, Rollouts
from tinker_atropos.errors import EnvironmentLostError, RunError

logger = logging.getLogger(__name__)


async def serve(assignment: Assignment, shared: SharedState, heartbeat: Heartbeat, ending: RunEnd) -> None:
    """Raises RunError for what ends it."""
    settings, run = assignment.settings, assignment.run
    atropos_patches.list_token_ids()
    loaded = load_environment(assignment.located)
    env = loaded.build(run, wired_to_run(run, settings))
    index = settings.environment_index or 0
    registration = EnvironmentRegistration(settings.api_url, index)
    plan = EvaluationPlan(run.tinker.eval_deadline_seconds, run.tinker.eval_metric)
    reports, snapshots = Reports(env, loaded.source), PolicySnapshots(settings.inference_url)
    evaluations = Evaluations(shared, heartbeat, reports, snapshots, plan)
    rollouts = Rollouts(
        shared, heartbeat, ending, evaluations, assignment.deadlines, registration=registration, source=loaded.source
    )
    atropos_patches.widen_retries()
    atropos_patches.replace_env_manager(rollouts.serve)
    sender = GroupSender(settings.api_url, shared.counters, ending.settle, reports=shared.rollouts, index=index)
    async with kept_connections(env.server.servers):
        atropos_patches.AtroposPatches(
            env,
            loaded.source,
            shared.counters,
            sender,
            ending.settle,
            reports=shared.rollouts,
            max_all_right_replaced=run.tinker.most_all_right_replaced,
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
