"""The environment container: one environment, from loading its class to the end of the run."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_contract.processes import ExitCode
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.environments.own_class import is_own
from tinker_atropos.environments.rollout.failures import describe, environment_failed
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations, PolicySnapshots, Reports
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment, locate_environment
from tinker_atropos.environments.runner.reporting import wandb_relay
from tinker_atropos.environments.runner.reporting.api_requests import EnvironmentRegistration
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat, heartbeat_running
from tinker_atropos.environments.runner.reporting.senders import GroupSender
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import RunEnd, Stop, exit_within
from tinker_atropos.environments.runner.serve_loop import SETUP_SECONDS, Deadlines, Rollouts
from tinker_atropos.errors import EnvironmentLostError, RunError
from tinker_atropos.garbage import uncollected
from tinker_atropos.result import write_reason
from tinker_atropos.settings import Settings

if TYPE_CHECKING:
    from tinker_atropos.environments.base import SampledEnvironment

logger = logging.getLogger(__name__)

LINGER_SECONDS = 15.0
"""How long the last heartbeat, and what an environment leaves behind (threads, clients), may delay the exit."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What this process is to serve."""

    settings: Settings
    run: RunConfig
    located: LocatedEnvironment
    deadlines: Deadlines


async def run_environment(
    settings: Settings, name_or_path: str, config_path: Path, deadlines: Deadlines | None = None
) -> None:
    """Serve an environment until the run is over or SIGTERM. The process exits soon after, whatever still runs in it.

    Raises ConfigError, EnvironmentLostError if the environment fails or exits early, InternalError otherwise.
    """
    process_setup.quieten()
    stop, ending = Stop(), RunEnd()
    located = locate_environment(name_or_path)
    assignment = Assignment(settings, load_config(config_path), located, deadlines or Deadlines())
    shared = SharedState(total_steps=assignment.run.env.total_steps)
    async with heartbeat_running(settings, shared, ending.settle, assignment.deadlines.trainer) as heartbeat:
        try:
            await _serve(assignment, shared, heartbeat, ending)
        except asyncio.CancelledError:
            if not stop.requested:  # a sys.exit of the environment is leaving the event loop
                exit_within(LINGER_SECONDS, ExitCode.FAILURE, "the environment called sys.exit and did not end")
                await heartbeat.conclude("failed", "the environment left early: it called sys.exit")
                raise
            logger.info("stopped as asked")
        except RunError as error:
            write_reason(settings.result_file, str(error))  # now: what the environment left behind may never end
            exit_within(LINGER_SECONDS, error.exit_code, f"{error}; what it left behind did not end")
            await heartbeat.conclude("failed", str(error))
            raise
        else:
            exit_within(LINGER_SECONDS, ExitCode.DONE, "the run is over; what the environment left behind did not end")
            await heartbeat.conclude("done")


async def _serve(assignment: Assignment, shared: SharedState, heartbeat: Heartbeat, ending: RunEnd) -> None:
    settings, run = assignment.settings, assignment.run
    process_setup.bypass_proxies([settings.api_url, settings.inference_url])
    wandb_relay.install(shared.metrics)
    # These imports load atroposlib: only now that `import wandb` finds the relay.
    with uncollected(), process_setup.torch_hidden(unless_mentioned_in=assignment.located.file):
        from tinker_atropos.environments.runner import atropos_patches
        from tinker_atropos.environments.runner.loading.environment_config import wired_to_run
        from tinker_atropos.environments.runner.loading.environment_loader import load_environment
        from tinker_atropos.environments.runner.policy_requests import kept_connections

    process_setup.quieten_atroposlib()
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
            if is_own(env):
                await _close(env, loaded.source)


async def _close(env: "SampledEnvironment[Any]", source: Path) -> None:
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
