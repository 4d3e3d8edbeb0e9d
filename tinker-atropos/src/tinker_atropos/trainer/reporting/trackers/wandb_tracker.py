"""The run's one W&B run: what it is called, the ways to record it, and the process that does.

Whatever that process does or fails to do, training continues at the same pace.
"""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rl_contract.env_vars import TINKER_API_KEY, WANDB_API_KEY, WANDB_MODE, WANDB_NOTES
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.trackers.tracker import COLUMNS, Row

logger = logging.getLogger(__name__)

SUCCESSES = ("succeeded", "stopped")
"""The outcomes of a result that are not failures."""

MAX_WAITING_BYTES = 16 * 2**20
"""Limit of points that the process has not accepted yet; beyond it, logging stops."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to record a run: a program (as `wandb_program.py`), its arguments and all of its environment variables.

    `unopened` is why it is given up, where it ends without having opened the run and without a reason of its own; the
    next way is then taken. One that `connects` is given up early when the run ends.
    """

    module: str
    arguments: Mapping[str, Any]
    env_vars: Mapping[str, str]
    unopened: str
    connects: bool = False


class TrackerProcess:
    """Sends points to a process without ever waiting for it.

    If a process cannot open the run, the next way is taken; what was sent until then is sent again.
    """

    def __init__(
        self,
        title: str,
        wire: Mapping[str, object],
        ways: Sequence[Way],
        close_seconds: float,
        connect_seconds: float | None = None,
    ) -> None:
        """`wire` is what is known before the process says more. No ways: disabled, every call is a no-op. When the run
        ends, a server has `connect_seconds` to answer if it has not yet; everything has `close_seconds`.
        """
        self._title = title
        self._ways = ways
        self._close_seconds = close_seconds
        self._connect_seconds = close_seconds if connect_seconds is None else connect_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._unopened = bytearray()
        self._if_unsent = ""
        self._connecting = self._closing = False
        self._wire: dict[str, object] = {"state": "disabled", **wire}

    def start(self) -> None:
        if self._ways:
            self._wire["state"] = "starting"
            self._life = asyncio.create_task(self._live(), name=self._title)

    def log_step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Row] = ()) -> None:
        """A point on the axis `train/step`, occasionally with a table of sampled rollouts."""
        table = {"columns": COLUMNS, "data": samples} if samples else None
        self._send({"step": step, "metrics": metrics, "samples": table})

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        self._send({"reported_step": step, "metrics": metrics})

    async def close(self, result: Mapping[str, Any]) -> None:
        """Finish the tracker's run with the trainer's result as its summary, within `close_seconds`."""
        if self._life is None:
            return
        summary = {f"result/{name}": value for name, value in result.items()}
        self._send({"summary": summary, "exit_code": int(result["outcome"] not in SUCCESSES)})
        self._closing = True
        self._close_input()
        connecting = asyncio.get_running_loop().call_later(self._connect_seconds, self._stop_connecting)
        await asyncio.wait({self._life}, timeout=self._close_seconds)
        connecting.cancel()
        if not self._life.done():
            self._give_up(f"it did not finish within {self._close_seconds:g} s")
            self._kill()
        await self._life

    def to_wire(self) -> dict[str, object]:
        """`state` (disabled, starting, running, finished, failed, or what became of a run that ended early), and what
        else is known.
        """
        return self._wire

    async def _live(self) -> None:
        """From the first process's start to the last one's end."""
        reason = None
        try:
            for way in self._ways:
                if self._wire["state"] == "starting":
                    reason = await self._follow_process(way, reason)
                    if self._wire["state"] == "starting":
                        reason = reason or way.unopened
        except OSError as error:
            reason = f"its process cannot be started: {error}"
        self._give_up(reason or "its process ended")

    async def _follow_process(self, way: Way, reason: str | None) -> str | None:
        """Start a process and read from it until it ends; returns why it could not continue."""
        self._connecting = way.connects
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", way.module, json.dumps(way.arguments)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=way.env_vars,
            start_new_session=True,  # signals to the trainer must not reach it: it ends when the trainer does
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(bytes(self._unopened))
        if self._closing:
            self._close_input()
        async for line in process.stdout:
            told = json.loads(line)
            failure = told.pop("failure", None)
            self._heard(told, failure or reason)
            reason = failure or reason
        await process.wait()
        self._process = None  # nobody reads what would be written to it
        return reason

    def _heard(self, told: dict[str, Any], reason: str | None) -> None:
        if note := told.pop("note", None):
            logger.info("%s: %s", self._title, note)
        if self._wire["state"] == "failed" or "state" not in told:
            return
        self._if_unsent = told.pop("if_unsent", self._if_unsent)
        self._wire |= told
        self._unopened.clear()
        self._connecting = False
        if told["state"] == "running":
            logger.info("%s run: %s", self._title, self._wire.get("url"))
        elif told["state"] != "finished":
            logger.warning("%s is %s%s", self._title, told["state"], f" ({reason})" if reason else "")

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._life is None or self._wire["state"] == "failed":
            return
        line = json.dumps(message).encode() + b"\n"  # not orjson: a metric may be NaN
        stdin = self._process.stdin if self._process else None
        waiting = stdin.transport.get_write_buffer_size() if stdin else 0
        if waiting + len(self._unopened) > MAX_WAITING_BYTES:
            self._fail(f"it has not taken {MAX_WAITING_BYTES} bytes of points")
            self._kill()
            return
        if self._wire["state"] == "starting":
            self._unopened += line
        if stdin is not None:
            stdin.write(line)

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _stop_connecting(self) -> None:
        """The server has not answered yet: take the next way, and stop waiting."""
        if self._connecting:
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _give_up(self, reason: str) -> None:
        """An abnormal end: what was opened is on disk, if not at the server."""
        if self._wire["state"] == "running":
            self._heard({"state": self._if_unsent}, reason)
        elif self._wire["state"] == "starting":
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._wire["state"] != "failed":
            self._wire["state"] = "failed"
            self._unopened.clear()
            logger.warning("%s is off for this run: %s", self._title, reason)


PROGRAM = "tinker_atropos.trainer.reporting.trackers.wandb_program"

CONNECT_SHARE = 0.3
"""Share of the closing time that a server has to answer if it has not yet; then the run is recorded offline."""

FINISH_SHARE = 0.7
"""Share of the closing time that W&B has to send the rest; what is left then stays on disk."""


@dataclass(frozen=True, slots=True)
class WandbArguments:
    """Arguments of wandb.init. None leaves the choice to W&B and its variables (WANDB_ENTITY, WANDB_TAGS, …)."""

    id: str
    project: str | None
    group: str | None
    name: str | None
    notes: str | None
    config: Mapping[str, Any]


def enabled(environ: Mapping[str, str]) -> bool:
    """W&B is used only if it is configured: with a key, or for offline files."""
    mode = environ.get(WANDB_MODE, "")
    return mode == "offline" or (bool(environ.get(WANDB_API_KEY)) and mode != "disabled")


def wandb_settings(settings: Settings, config: RunConfig, environ: Mapping[str, str]) -> WandbArguments | None:
    """What W&B shows of the run: its config, where it runs, what it started from. None: W&B is not used."""
    if not enabled(environ):
        return None
    place = {"name": settings.run_name, "namespace": settings.run_namespace, "uid": settings.run_uid}
    notes = [environ.get(WANDB_NOTES), settings.start_from and f"Started from the weights {settings.start_from}"]
    return WandbArguments(
        id=settings.wandb_run_id or f"{settings.run_namespace}-{settings.run_name}",
        project=config.tinker.wandb_project,
        group=config.tinker.wandb_group,
        name=config.tinker.wandb_run_name or settings.run_name,
        notes="\n".join(filter(None, notes)) or None,
        config={**config.model_dump(mode="json"), "run": place, **_start(settings)},
    )


def wandb_tracker(
    settings: WandbArguments | None,
    environ: Mapping[str, str],
    close_seconds: float,
    *,
    connect_share: float = CONNECT_SHARE,
    finish_share: float = FINISH_SHARE,
) -> TrackerProcess:
    """Settings None: disabled. The shares are of `close_seconds`.

    `/status` shows `state` (disabled, starting, running, finished, failed, or offline with the command to send it),
    `url` and `runId`.
    """
    return TrackerProcess(
        "W&B",
        {"url": None, "runId": settings.id if settings else None},
        _ways(settings, environ, finish_share * close_seconds) if settings else (),
        close_seconds,
        connect_share * close_seconds,
    )


def _ways(settings: WandbArguments, environ: Mapping[str, str], finish_seconds: float) -> list[Way]:
    """At the server, unless that is not wanted; else on disk."""
    quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    env_vars = {name: value for name, value in environ.items() if name != TINKER_API_KEY} | quiet
    arguments = asdict(settings) | {"finish_seconds": finish_seconds}
    online = Way(PROGRAM, arguments | {"mode": "online"}, env_vars, "its server did not answer", connects=True)
    offline = Way(PROGRAM, arguments | {"mode": "offline"}, env_vars, "its process ended")
    return [offline] if environ.get(WANDB_MODE) == "offline" else [online, offline]


def _start(settings: Settings) -> dict[str, object]:
    """The state that the run started from, and which run saved it."""
    if settings.start_from is None:
        return {}
    parent = settings.parent
    return {
        "start_from": {
            "run": parent.run,
            "step": parent.step,
            "state_path": settings.start_from,
            "wandb_url": parent.wandb_url,
        }
    }
