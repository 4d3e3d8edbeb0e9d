"""The run's one W&B run. Advisory: whatever W&B does or fails to do, training goes on at the same pace."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 16 * 2**20
"""Points that W&B has not taken yet; beyond it the run is logged no further."""

STEP_KEY = "train/step"


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """Arguments of wandb.init. None leaves the choice to W&B and its environment variables."""

    id: str | None
    project: str | None
    group: str | None
    name: str | None
    config: Mapping[str, Any]


def enabled(environ: Mapping[str, str]) -> bool:
    """W&B is used only when somebody asked for it: with a key, or for offline files."""
    mode = environ.get("WANDB_MODE", "")
    return mode == "offline" or (bool(environ.get("WANDB_API_KEY")) and mode != "disabled")


class WandbSink:
    """Hands metrics to the W&B process without ever waiting for it."""

    def __init__(self, settings: WandbSettings | None) -> None:
        """None: disabled, every call is a no-op."""
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._wire: dict[str, Any] = {"state": "disabled", "url": None, "runId": settings.id if settings else None}

    async def start(self) -> None:
        if self._settings is None:
            return
        self._wire["state"] = "starting"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tinker_atropos.trainer.wandb_process"),
            orjson.dumps(asdict(self._settings)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "TINKER_API_KEY"} | {"WANDB_SILENT": "1"},
            start_new_session=True,  # a signal to the trainer is not for W&B: it ends when the trainer does
        )
        self._listening = asyncio.create_task(self._listen(self._process), name="wandb")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one point of the axis `train/step`."""
        stdin = self._process.stdin if self._process else None
        if stdin is None or self._wire["state"] == "failed":
            return
        if stdin.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
            self._fail(f"it has not taken {MAX_WAITING_BYTES} bytes of points")
        else:
            stdin.write(orjson.dumps({STEP_KEY: step, **metrics}) + b"\n")

    async def close(self, seconds: float) -> None:
        """Finish the W&B run, waiting at most `seconds`."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self._fail(f"it did not finish within {seconds:g} s")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await self._listening

    def to_wire(self) -> dict[str, Any]:
        """`state` (disabled, starting, running, offline, finished or failed), `url` and `runId`."""
        return self._wire

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told = orjson.loads(line)
            reason = told.pop("reason", None)
            if reason is None:
                self._wire |= told
            else:
                self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._wire["state"] != "failed":
            self._wire["state"] = "failed"
            logger.warning("W&B is off for this run: %s", reason)
