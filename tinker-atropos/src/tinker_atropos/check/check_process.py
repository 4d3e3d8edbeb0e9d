"""`tinker-atropos check NAME|FILE`: one environment, within a time limit, and one report.

No process that the environment started outlives the check. On Linux all of them are found, also those whose parent has
ended: they become this process's children. Elsewhere only those that were started with multiprocessing are known.
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from rl_contract.processes import ExitCode
from tinker_atropos.check.check_report import CheckReport, OutputForm
from tinker_atropos.check.observations import BrokenOffError, Observations
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment, locate_environment
from tinker_atropos.environments.runner.reporting import wandb_relay
from tinker_atropos.environments.runner.run_end import STOP_SECONDS, Stop, exit_within
from tinker_atropos.environments.trial.provider import Provider

STOPPED: Final = "stopped as asked"
LINGER_SECONDS: Final = 2.0
"""How long what an environment leaves behind (threads, clients) may delay the exit."""

BEYOND_SECONDS: Final = 3.0
"""How long after the limit a process is killed that holds the GIL: it can neither report nor exit cleanly."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`config` None: the environment's own. `model` empty: scripted answers instead of a provider's."""

    config: Path | None = None
    model: str = ""
    groups: int = 3
    limit_seconds: float = 120.0
    seed: int = 0
    output: OutputForm = "text"


async def run_check(name_or_path: str, options: CheckOptions) -> ExitCode:
    """Check an environment and print the report. Ends within the limit, even if the environment blocks.

    Raises ConfigError, without a report, if it is the command or the config file that is wrong.
    """
    provider = Provider.take(options.model) if options.model else None
    located = locate_environment(name_or_path)
    run = None if options.config is None else load_config(options.config)
    seen = Observations(name_or_path, options.model or None, options.seed, options.groups)
    report = CheckReport(seen, options.output, provider.redact if provider else str)
    adopt_orphans()
    asked = threading.Event()
    stop = Stop(asked.set)
    _end_at(options.limit_seconds, asked, seen, report)
    try:
        with contextlib.suppress(BrokenOffError):  # the report says why
            await _check(located, run, provider, seen)
    except asyncio.CancelledError:  # without a signal: a sys.exit of the environment is leaving the event loop
        seen.break_off(STOPPED if stop.requested else "the environment left early: it called sys.exit")
    finally:
        faulthandler.cancel_dump_traceback_later()
        end_descendants()
    return _finish(report)


async def _check(
    located: LocatedEnvironment, run: RunConfig | None, provider: Provider | None, seen: Observations
) -> None:
    process_setup.quieten()
    logging.getLogger().setLevel(logging.WARNING)
    process_setup.bypass_proxies([])
    if provider is not None:
        os.environ["ATROPOS_ALLOW_DUMMY_MANAGED_SERVER"] = "1"  # placeholders for tokens that it does not return
    wandb_relay.install(wandb_relay.MetricsQueue())
    with process_setup.torch_hidden(unless_mentioned_in=located.file):
        from tinker_atropos.check.checked_environment import EnvironmentCheck
        from tinker_atropos.environments.runner import atropos_patches

    process_setup.quieten_atroposlib()
    atropos_patches.list_token_ids()
    random.seed(seen.seed)
    np.random.seed(seen.seed % 2**32)  # noqa: NPY002 -- environments draw from it
    await EnvironmentCheck(located, run, provider, seen).check()


def _end_at(limit_seconds: float, asked: threading.Event, seen: Observations, report: CheckReport) -> None:
    """End the process at the limit, or soon after it was `asked` to stop, whatever the environment does: it may wait
    forever, block the event loop, or hold the GIL, against which only a non-Python thread helps.
    """

    def end() -> None:
        if asked.wait(limit_seconds):
            time.sleep(STOP_SECONDS)
            seen.break_off(STOPPED)
        seen.break_off(f"not done within {limit_seconds:g} s, the limit of this check")
        if report.close():
            end_descendants()
            os._exit(ExitCode.FAILURE)

    threading.Thread(target=end, name="limit", daemon=True).start()
    faulthandler.dump_traceback_later(limit_seconds + BEYOND_SECONDS, exit=True)


def _finish(report: CheckReport) -> ExitCode:
    code = ExitCode.FAILURE if report.verdict == "failed" else ExitCode.DONE
    report.close()
    exit_within(LINGER_SECONDS, code, "what the environment left behind did not end")
    return code


PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
OBEY_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.02


def adopt_orphans() -> None:
    """From now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """With SIGTERM, and with SIGKILL what does not obey. Those that stop on SIGTERM may start none in their place."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + OBEY_SECONDS
        while descendants() and time.monotonic() < until:
            _reap()
            time.sleep(POLL_SECONDS)
    _reap()


def descendants() -> list[int]:
    """Ids of the processes below this one; what has ended and waits to be read by its parent is none."""
    if sys.platform != "linux":
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state not in "ZX":
                    children[int(parent)].append(int(folder.name))
    found = [os.getpid()]
    for pid in found:
        found += children[pid]
    return found[1:]


def _reap() -> None:
    """Read what ended: otherwise it would be shown as a child until this process ends, too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
