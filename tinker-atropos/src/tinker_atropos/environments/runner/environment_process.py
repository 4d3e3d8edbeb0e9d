"""The environment container: one environment, from loading its class to the end of the run."""

import asyncio
import logging
from pathlib import Path

from rl_contract.processes import ExitCode
from tinker_atropos.config.run_config import load_config, require_same
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_files import (
    Assignment,
    Deadlines,
    locate_environment,
    sha256_of_files,
)
from tinker_atropos.environments.runner.reporting import wandb_relay
from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat, heartbeat_running
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import LINGER_SECONDS, RunEnd, Stop, exit_within
from tinker_atropos.errors import RunError
from tinker_atropos.library_imports import torch_hidden, uncollected
from tinker_atropos.result import write_reason
from tinker_atropos.settings import Settings

logger = logging.getLogger(__name__)


async def run_environment(
    settings: Settings, name_or_path: str, config_path: Path, deadlines: Deadlines | None = None
) -> None:
    """Serve an environment until the run is over or SIGTERM. The process exits soon after, whatever still runs in it.

    Raises ConfigError, EnvironmentLostError if the environment fails or exits early, InternalError otherwise.
    """
    process_setup.quieten()
    stop, ending = Stop(), RunEnd()
    located = locate_environment(name_or_path)
    if settings.source_sha256:
        require_same(f"the folder {located.file.parent}", sha256_of_files(located.file.parent), settings.source_sha256)
    config = load_config(config_path, settings.config_sha256)
    assignment = Assignment(settings, config, located, deadlines or Deadlines())
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
            answer = heartbeat.answer
            await heartbeat.conclude("done", answer.why if answer and answer.trainer_state == "lost" else None)


async def _serve(assignment: Assignment, shared: SharedState, heartbeat: Heartbeat, ending: RunEnd) -> None:
    settings = assignment.settings
    process_setup.bypass_proxies([settings.api_url, settings.inference_url])
    wandb_relay.install(shared.metrics)
    # This import loads atroposlib: only now that `import wandb` finds the relay.
    with uncollected(), torch_hidden(unless_mentioned_in=assignment.located.file):
        from tinker_atropos.environments.runner.serve_loop import serve

    process_setup.quieten_atroposlib()
    await serve(assignment, shared, heartbeat, ending)
