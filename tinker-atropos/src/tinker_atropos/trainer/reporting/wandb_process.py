"""W&B in a process of its own: `python -m tinker_atropos.trainer.reporting.wandb_process SETTINGS`.

When its server does not answer, wandb blocks for minutes and delays the exit of its process, which is harmless here.
Messages are read as JSON lines from stdin, whose end finishes the run; states are written as JSON lines to stdout.
What the server does not accept stays on disk: an offline run, which the next attempt or a user sends.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tinker_atropos.trainer.reporting.wandb_folders import (
    STEP_KEY,
    LastStep,
    StepAxis,
    mark_sent,
    send,
    sync_command,
    unsent_folders,
)

INIT_SECONDS = 30.0
"""How long the server may take to answer before the run is recorded offline."""

SEND_SECONDS = 60.0
ANSWER_SECONDS = 2.0
_TELLING = os.fdopen(os.dup(1), "wb", buffering=0)
"""Our own standard output: W&B's processes would inherit fd 1, and keep it open after this process has exited."""

NICE = 10
"""W&B's processes yield to the trainer where they share its cores."""

SAMPLES_KEY = "samples"


class WandbRun:
    """The open run and its axis."""

    def __init__(self, wandb: Any, run: Any, last_step: LastStep) -> None:
        self._wandb = wandb
        self._run = run
        self._last_step = last_step
        run.define_metric(STEP_KEY)
        run.define_metric("*", step_metric=STEP_KEY)
        self._axis = StepAxis(max(last_step.read(), int(run.summary.get(STEP_KEY) or 0)))

    def follow(self, lines: Iterable[bytes]) -> int:
        """Log what arrives; returns the exit code that the run ends with: 1, unless a message sets another."""
        exit_code = 1
        for line in lines:
            match json.loads(line):
                case {"step": step, "metrics": metrics, "samples": samples}:
                    self._log_step(step, metrics, samples)
                case {"reported_step": step, "metrics": metrics}:
                    self._log(self._axis.reported(step, metrics))
                case {"summary": summary, "exit_code": exit_code}:
                    self._run.summary.update(summary)
        if self._axis.replayed:
            _tell(note=f"{self._axis.replayed} points are in W&B since they were first trained: not logged again")
        return exit_code

    def _log_step(self, step: int, metrics: Mapping[str, float], samples: Mapping[str, Any] | None) -> None:
        point: dict[str, Any] | None = self._axis.trained(step, metrics)
        if point is not None and samples is not None:
            point[SAMPLES_KEY] = self._table(samples)
        self._log(point)
        self._last_step.write(self._axis.last)

    def _table(self, samples: Mapping[str, Any]) -> Any:
        """Binding makes W&B create an artifact and wait for its server: not done if that cannot be reached."""
        table = self._wandb.Table(**samples)
        if not self._run.offline and not _answers(self._run.settings.base_url):
            table.bind_to_run(self._run, SAMPLES_KEY, self._axis.last)
        return table

    def _log(self, point: Mapping[str, Any] | None) -> None:
        if point is not None:
            self._run.log(point)


def main() -> None:
    os.dup2(2, 1)
    os.nice(NICE)
    wanted = {key: value for key, value in json.loads(sys.argv[1]).items() if value is not None}
    finish_seconds = wanted.pop("finish_seconds")
    try:
        import wandb

        settings = wandb.Settings(
            silent=True,
            console="off",
            init_timeout=INIT_SECONDS,
            finish_timeout=finish_seconds,
            finish_timeout_raises=True,
        )
        run = _open(wandb, wanted, settings)
        folder = Path(run.settings.sync_dir)
        exit_code = WandbRun(wandb, run, LastStep(folder.parent, run.id)).follow(sys.stdin.buffer)
        _finish(run, folder, exit_code)
    except Exception as error:  # noqa: BLE001 -- the process's edge: the trainer logs it once and continues
        _tell(failure=f"{type(error).__name__}: {error}".splitlines()[0])
        os._exit(1)  # W&B would keep trying to reach its server for minutes


def _open(wandb: Any, wanted: Mapping[str, Any], settings: Any) -> Any:
    """The run, resumed where its earlier attempts ended.

    Raises if the server does not accept it, or has not accepted what earlier attempts left, which is sent first.
    """
    wandb_folder, run_id = Path(wandb.setup().settings.wandb_dir), wanted["id"]
    earlier, online = unsent_folders(wandb_folder, run_id), wanted["mode"] == "online"
    if online and earlier and (left := send(earlier, run_id, SEND_SECONDS)):
        raise ConnectionError(f"the server did not take what earlier attempts left in {left[0]}")
    run = wandb.init(**wanted, settings=settings, resume="allow", allow_val_change=True)
    unsent = _unsent_state([*([] if online else earlier), Path(run.settings.sync_dir)])
    _tell(state="running" if online else unsent, url=run.url, if_unsent=unsent)
    return run


def _finish(run: Any, folder: Path, exit_code: int) -> None:
    if run.offline:
        run.finish(exit_code)
        return
    try:
        run.finish(exit_code)
    except TimeoutError:
        _tell(state=_unsent_state([folder]), failure="its server has not taken everything")
    else:
        mark_sent(folder, run.id)
        _tell(state="finished")


def _answers(base_url: str) -> bool:
    try:
        status = httpx.get(f"{base_url}/healthz", timeout=ANSWER_SECONDS).status_code
    except httpx.HTTPError:
        return False
    return status < 500 and status != 429


def _unsent_state(folders: Sequence[Path]) -> str:
    return f"offline; to send it: {sync_command(folders)}"


def _tell(**told: str | None) -> None:
    _TELLING.write(json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    main()
