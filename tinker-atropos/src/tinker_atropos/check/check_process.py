"""`tinker-atropos check NAME|FILE`: one environment, within a time limit, and one report: a table for people, or one
JSON object (docs/reference/check.md), printed once, whatever happens.

No process that the environment started outlives the check. On Linux all of them are found, also those whose parent has
ended: they become this process's children. Elsewhere only those that were started with multiprocessing are known.
"""

import asyncio
import contextlib
import faulthandler
import json
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from rl_contract.processes import ExitCode
from tinker_atropos.check.checks import Finding, Verdict, counted, findings, worst
from tinker_atropos.check.observations import AnswerSeen, BrokenOffError, Observations
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment, locate_environment
from tinker_atropos.environments.runner.reporting import wandb_relay
from tinker_atropos.environments.runner.run_end import STOP_SECONDS, Stop, exit_within
from tinker_atropos.environments.trial.provider import Provider
from tinker_atropos.library_imports import torch_hidden
from tinker_atropos.sandboxes.sandbox_server.process_tree import descendants, is_alive, reap_orphans
from tinker_atropos.sandboxes.sandbox_server.walls import adopt_orphans

SHOWN_ANSWERS: Final = 8
SHOWN_CHARACTERS: Final = 200

OutputForm = Literal["text", "json"]


class CheckReport:
    """Reserves stdout for itself: whatever an environment prints goes to stderr."""

    def __init__(self, seen: Observations, form: OutputForm, redact: Callable[[str], str]) -> None:
        self._seen, self._form, self._redact = seen, form, redact
        self._lock = threading.Lock()
        self._closed = False
        self._output = os.dup(1)
        os.dup2(2, 1)

    def close(self) -> bool:
        """Print it, unless it has been. May be called from any thread. Whether it was printed by this call."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            found = findings(self._seen)
            text = as_json(self._seen, found) if self._form == "json" else as_text(self._seen, found)
            left = memoryview(f"{self._redact(text)}\n".encode(errors="replace"))
            while left:
                left = left[os.write(self._output, left) :]
            return True

    @property
    def verdict(self) -> Verdict:
        return worst([each.verdict for each in findings(self._seen)])


def as_text(seen: Observations, found: list[Finding]) -> str:
    return "\n".join(_lines(seen, found))


def _lines(seen: Observations, found: list[Finding]) -> Iterator[str]:
    by = f"model {seen.model}" if seen.model is not None else f"scripted answers, seed {seen.seed}"
    groups = f", {counted(seen.groups_asked, 'group')} of {seen.group_size}" if seen.group_size else ""
    tokenizer = f", tokenizer {seen.tokenizer}" if seen.tokenizer else ""
    yield f"{seen.environment}: {by}{groups}{tokenizer}"
    yield ""
    for each in found:
        yield f"  {each.verdict:<8} {each.check:<9} {each.said}"
    group = next((group for group in seen.groups if group.answers), None)
    if group is not None:
        yield ""
        yield f"  one item: {_quoted(group.prompt)}"
        for answer in group.answers[:SHOWN_ANSWERS]:
            kind = f" ({answer.kind})" if answer.kind else ""
            yield f"  {answer.reward:>8.4g} {answer.tokens:>5} tokens  {_quoted(answer.text)}{kind}"
    yield ""
    verdicts = [each.verdict for each in found]
    tally = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(sorted(verdicts)))
    yield f"{worst(verdicts)}: {tally}"


def as_json(seen: Observations, found: list[Finding]) -> str:
    return json.dumps(to_wire(seen, found), indent=2, ensure_ascii=False, allow_nan=False)


def to_wire(seen: Observations, found: list[Finding]) -> dict[str, object]:
    """Names are stable. What is not known is null."""
    group = next((group for group in seen.groups if group.answers), None)
    return {
        "environment": seen.environment,
        "class": seen.class_name,
        "model": seen.model,
        "seed": seen.seed,
        "tokenizer": seen.tokenizer,
        "verdict": worst([each.verdict for each in found]),
        "checks": list(map(asdict, found)),
        "seconds": {stage: round(seconds, 3) for stage, seconds in seen.seconds.items()},
        "requests": {"by_route": dict(seen.requests), "refused": dict(seen.requests_refused)},
        "groups": _groups(seen),
        "tokens": _tokens(seen),
        "rewards": _rewards(seen),
        "graded": list(map(asdict, seen.graded)),
        "held_out": _held_out(seen),
        "item": None if group is None else {"prompt": group.prompt, "answers": list(map(_answer, group.answers))},
    }


def _groups(seen: Observations) -> dict[str, object]:
    counters = seen.counters
    return {
        "asked": seen.groups_asked,
        "size": seen.group_size or None,
        "sent": len(seen.groups),
        "refused": len(seen.groups) - len(seen.accepted),
        "unusable": sum(group.unusable is not None for group in seen.accepted),
        "differ": sum(group.teaches for group in seen.accepted),
        "dropped": {str(reason): count for reason, count in counters.filtered_by.items() if count},
        "failed": {str(reason): count for reason, count in counters.failed_by.items() if count},
        "rollouts_scored": sum(len(group.rewards) for group in seen.groups),
        "rollouts_failed": {str(kind): count for kind, count in counters.rollouts.failed_by.items() if count},
        "rollouts_trained": sum(group.trained_rollouts for group in seen.accepted),
    }


def _tokens(seen: Observations) -> dict[str, object]:
    lengths = [each.tokens for each in seen.sequences]
    known = [each for each in seen.sequences if each.sampled is not None]
    return {
        "mean": round(sum(lengths) / len(lengths), 1) if lengths else None,
        "max": max(lengths, default=None),
        "max_token_length": seen.max_token_length or None,
        "longest_trained": seen.longest_trained or None,
        "all": sum(lengths),
        "trained": sum(each.trained for each in seen.sequences),
        "sampled": sum(each.sampled or 0 for each in known) if known else None,
        "trained_and_sampled": sum(each.trained_sampled for each in known) if known else None,
    }


def _rewards(seen: Observations) -> dict[str, float | None]:
    finite = [reward for group in seen.groups for reward in group.rewards if math.isfinite(reward)]
    if not finite:
        return {"min": None, "max": None, "mean": None}
    return {"min": min(finite), "max": max(finite), "mean": round(sum(finite) / len(finite), 4)}


def _held_out(seen: Observations) -> dict[str, object] | None:
    """Figures of the main set, and of others by their names."""
    if seen.held_out is None:
        return None
    main, *others = ((name, asdict(items)) for name, items in seen.held_out.items())
    return main[1] | ({"sets": dict(others)} if others else {})


def _answer(answer: AnswerSeen) -> dict[str, object]:
    return {"kind": answer.kind, "text": answer.text, "reward": answer.reward, "tokens": answer.tokens}


def _quoted(text: str) -> str:
    short = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    return json.dumps(short, ensure_ascii=False)


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
    with torch_hidden(unless_mentioned_in=located.file):
        from tinker_atropos.check.checked_environment import EnvironmentCheck
        from tinker_atropos.environments.runner import atropos_patches

    process_setup.quieten_atroposlib()
    atropos_patches.list_token_ids()
    process_setup.seed_generators(seen.seed)
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


OBEY_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.02


def end_descendants() -> None:
    """With SIGTERM, and with SIGKILL what does not obey. Those that stop on SIGTERM may start none in their place."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in living_descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + OBEY_SECONDS
        while living_descendants() and time.monotonic() < until:
            reap_orphans(set())  # what ended would be shown as a child until this process ends, too
            time.sleep(POLL_SECONDS)
    reap_orphans(set())


def living_descendants() -> list[int]:
    """Ids of the processes below this one."""
    if sys.platform != "linux":
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    return [pid for pid in descendants() if is_alive(pid)]
