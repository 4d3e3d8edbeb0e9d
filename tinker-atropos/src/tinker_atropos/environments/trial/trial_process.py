"""`tinker-atropos environment NAME process`: a few steps with one model, within a time limit."""

import asyncio
import faulthandler
import json
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rl_contract.processes import ExitCode
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.environments.rollout.failures import authors_code
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment, locate_environment
from tinker_atropos.environments.runner.reporting import wandb_relay
from tinker_atropos.environments.runner.run_end import exit_within
from tinker_atropos.environments.trial.provider import Provider, Wishes
from tinker_atropos.environments.trial.trial_report import Report
from tinker_atropos.errors import ConfigError, EnvironmentLostError, RunError
from tinker_atropos.library_imports import torch_hidden

if TYPE_CHECKING:  # it imports atroposlib, which finds our `wandb` only if that was installed before
    from tinker_atropos.environments.trial.trial_step import Trying

logger = logging.getLogger(__name__)

LINGER_SECONDS = 2.0
"""How long what an environment leaves behind (threads, clients) may delay the exit."""

BEYOND_SECONDS = 3.0
"""How long after the limit a process is killed that holds the GIL and so cannot exit cleanly."""

REQUEST_SHARE = 0.5
"""How long one answer may take, as a share of the limit."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """`group_size` None: the config's. `prompts`: a JSON list of strings; then each is a step, and `wishes` replace
    what the environment asks for.
    """

    model: str
    steps: int = 3
    group_size: int | None = None
    limit_seconds: float = 600.0
    prompts: Path | None = None
    wishes: Wishes = field(default_factory=Wishes)


async def run_trial(name_or_path: str, config_path: Path, options: TrialOptions) -> None:
    """Try an environment. Ends within the limit, even if the environment blocks; the summary is printed in any case.

    Raises ConfigError, CredentialsError if the provider refuses the key, EnvironmentLostError if the environment cannot
    be tried.
    """
    provider = Provider.take(options.model)
    prompts = read_prompts(options.prompts) if options.prompts else []
    report = Report(options.model, len(prompts) or options.steps, provider.redact)
    _prepare_logging(provider)
    end_at(options.limit_seconds, report)
    try:
        located, run = locate_environment(name_or_path), load_config(config_path)
        group_size = options.group_size or run.env.group_size
        report.start(name_or_path, group_size, options.limit_seconds)
        trying = await _set_up(located, run, provider, options, group_size)
        await _try(trying, prompts, report)
    except asyncio.CancelledError:  # a sys.exit in one of the environment's tasks: it is leaving the event loop
        report.close("the environment left early: it called sys.exit")
        raise
    except RunError as error:
        _finish(report, error.exit_code, provider.redact(str(error)))
        raise type(error)(provider.redact(str(error))) from None
    _finish(report, ExitCode.DONE)


async def _set_up(
    located: LocatedEnvironment, run: RunConfig, provider: Provider, options: TrialOptions, group_size: int
) -> "Trying":
    process_setup.bypass_proxies([])
    os.environ["ATROPOS_ALLOW_DUMMY_MANAGED_SERVER"] = "1"  # placeholders for tokens that a provider does not return
    wandb_relay.install(wandb_relay.MetricsQueue())
    with torch_hidden(unless_mentioned_in=located.file):
        from tinker_atropos.environments.runner import atropos_patches
        from tinker_atropos.environments.runner.loading.environment_config import Wiring
        from tinker_atropos.environments.runner.loading.environment_loader import load_environment
        from tinker_atropos.environments.trial.provider_server import connect, retry_once
        from tinker_atropos.environments.trial.trial_step import Trying, refuse_unless_prompts_are_scored

    process_setup.quieten_atroposlib()
    atropos_patches.list_token_ids()
    retry_once()
    wired = {"group_size": group_size, "ensure_scores_are_not_same": False, "data_path_to_save_groups": None}
    wired["teacher_top_k"] = 0  # nothing is trained
    loaded = load_environment(located)
    env = loaded.build(run, Wiring(wired, provider.server_fields()))
    if options.prompts:
        refuse_unless_prompts_are_scored(env, loaded.environment_class.__name__)
    connect(env, options.wishes, options.limit_seconds * REQUEST_SHARE)
    with authors_code("in setup", loaded.source):
        await env.setup()
    return Trying(env, loaded.source)


async def _try(trying: "Trying", prompts: list[str], report: Report) -> None:
    """Step by step. A step that fails is reported, and the next one is tried."""
    for number in range(1, report.steps_requested + 1):
        step = await (trying.prompt(number, prompts[number - 1]) if prompts else trying.item(number))
        if step is None:
            raise EnvironmentLostError(f"the environment has only {number - 1} items: get_next_item gives no more")
        report.add(step)


def read_prompts(path: Path) -> list[str]:
    """Read a JSON list of strings. Raises ConfigError."""
    try:
        prompts: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the prompts {path}: {error}") from error
    if not (isinstance(prompts, list) and prompts and all(isinstance(prompt, str) for prompt in prompts)):
        raise ConfigError(f"{path} must hold a JSON list of texts, at least one")
    return prompts


def end_at(limit_seconds: float, report: Report) -> None:
    """End the process at the limit, whatever the environment does: it may wait forever, block the event loop, or hold
    the GIL, against which only a non-Python thread helps.
    """

    def end() -> None:
        time.sleep(limit_seconds)
        report.close(f"not done within {limit_seconds:g} s: the steps that were are counted")
        os._exit(ExitCode.BACKEND_UNREACHABLE)

    threading.Thread(target=end, name="limit", daemon=True).start()
    faulthandler.dump_traceback_later(limit_seconds + BEYOND_SECONDS, exit=True)


def _finish(report: Report, exit_code: ExitCode, error: str | None = None) -> None:
    faulthandler.cancel_dump_traceback_later()
    report.close(error)
    exit_within(LINGER_SECONDS, exit_code, "what the environment left behind did not end")


def _prepare_logging(provider: Provider) -> None:
    process_setup.quieten()

    def redact(record: logging.LogRecord) -> bool:
        record.msg, record.args = provider.redact(record.getMessage()), ()
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(redact)
