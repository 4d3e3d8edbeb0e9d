"""The run's one W&B run. Advisory: whatever W&B does or fails to do, training continues at the same pace."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tinker_atropos.config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.samples import COLUMNS, Row

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 16 * 2**20
"""Limit of points that W&B has not accepted yet; beyond it, logging stops."""

CONNECT_SHARE = 0.3
"""Share of the closing time that a server has to answer if it has not yet; then the run is recorded offline."""

FINISH_SHARE = 0.7
"""Share of the closing time that W&B has to send the rest; what is left then stays on disk."""

SUCCESSES = ("succeeded", "stopped")


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """Arguments of wandb.init. None leaves the choice to W&B and its variables (WANDB_ENTITY, WANDB_TAGS, …)."""

    id: str
    project: str | None
    group: str | None
    name: str | None
    notes: str | None
    config: Mapping[str, Any]


def enabled(environ: Mapping[str, str]) -> bool:
    """W&B is used only if it is configured: with a key, or for offline files."""
    mode = environ.get("WANDB_MODE", "")
    return mode == "offline" or (bool(environ.get("WANDB_API_KEY")) and mode != "disabled")


def wandb_settings(settings: Settings, config: RunConfig, environ: Mapping[str, str]) -> WandbSettings | None:
    """What W&B shows of the run: its config, where it runs, and the weights that it started from."""
    if not enabled(environ):
        return None
    place = {"name": settings.run_name, "namespace": settings.run_namespace, "uid": settings.run_uid}
    notes = [environ.get("WANDB_NOTES"), settings.start_from and f"Started from the weights {settings.start_from}"]
    return WandbSettings(
        id=settings.wandb_run_id or f"{settings.run_namespace}-{settings.run_name}",
        project=config.tinker.wandb_project,
        group=config.tinker.wandb_group,
        name=config.tinker.wandb_run_name or settings.run_name,
        notes="\n".join(filter(None, notes)) or None,
        config={**config.model_dump(mode="json"), "run": place, **_start(settings)},
    )


def _start(settings: Settings) -> dict[str, Any]:
    """The state that the run started from, and which run saved it, for W&B's config."""
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


class WandbSink:
    """Sends points to the W&B process without ever waiting for it.

    If a process cannot open the run at the server, another one is started that records it on disk; what was sent until
    then is sent again.
    """

    def __init__(
        self,
        settings: WandbSettings | None,
        close_seconds: float,
        *,
        connect_share: float = CONNECT_SHARE,
        finish_share: float = FINISH_SHARE,
    ) -> None:
        """Settings None: disabled, every call is a no-op. The shares are of `close_seconds`."""
        self._settings = settings
        self._close_seconds = close_seconds
        self._connect_seconds = connect_share * close_seconds
        self._finish_seconds = finish_share * close_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._unopened = bytearray()
        self._if_unsent = ""
        self._connecting = self._closing = False
        self._wire: dict[str, Any] = {"state": "disabled", "url": None, "runId": settings.id if settings else None}

    def start(self) -> None:
        if self._settings is not None:
            self._wire["state"] = "starting"
            self._life = asyncio.create_task(self._live(self._settings), name="wandb")

    def log_step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Row] = ()) -> None:
        """Send one trained step: a point on the axis `train/step`, occasionally with a table of sampled rollouts."""
        table = {"columns": COLUMNS, "data": samples} if samples else None
        self._send({"step": step, "metrics": metrics, "samples": table})

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Send what an environment reported; `step` is the environment's, if it gave one."""
        self._send({"reported_step": step, "metrics": metrics})

    async def close(self, result: Mapping[str, Any]) -> None:
        """Finish the W&B run with the trainer's result as its summary, within `close_seconds`."""
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

    def to_wire(self) -> dict[str, Any]:
        """`state` (disabled, starting, running, finished, failed, or offline with the command to send it), `url` and
        `runId`.
        """
        return self._wire

    async def _live(self, settings: WandbSettings) -> None:
        """From the first process's start to the last one's end."""
        reason = None
        try:
            if os.environ.get("WANDB_MODE") != "offline":
                reason = await self._follow_process(settings, "online", reason=None)
                if self._wire["state"] == "starting":
                    reason = reason or "its server did not answer"
            if self._wire["state"] == "starting":
                reason = await self._follow_process(settings, "offline", reason)
        except OSError as error:
            reason = f"its process cannot be started: {error}"
        self._give_up(reason or "its process ended")

    async def _follow_process(self, settings: WandbSettings, mode: str, reason: str | None) -> str | None:
        """Start a process and read from it until it ends; returns why it could not continue."""
        arguments = asdict(settings) | {"mode": mode, "finish_seconds": self._finish_seconds}
        quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
        self._connecting = mode == "online"
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tinker_atropos.trainer.reporting.wandb_process", json.dumps(arguments)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "TINKER_API_KEY"} | quiet,
            start_new_session=True,  # signals to the trainer must not reach W&B: it ends when the trainer does
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
        return reason

    def _heard(self, told: dict[str, Any], reason: str | None) -> None:
        if note := told.pop("note", None):
            logger.info("W&B: %s", note)
        if self._wire["state"] == "failed" or "state" not in told:
            return
        self._if_unsent = told.pop("if_unsent", self._if_unsent)
        self._wire |= told
        self._unopened.clear()
        self._connecting = False
        if told["state"] == "running":
            logger.info("W&B run: %s", told["url"])
        elif told["state"].startswith("offline"):
            logger.warning("W&B is %s%s", told["state"], f" ({reason})" if reason else "")

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
        """The server has not answered yet: record what there is offline, and stop waiting."""
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
            logger.warning("W&B is off for this run: %s", reason)
