"""W&B in a process of its own: `python -m tinker_atropos.trainer.reporting.trackers.wandb_program SETTINGS`.

When its server does not answer, wandb blocks for minutes and delays the exit of its process, which is harmless here.
What the server does not accept stays on disk: an offline run, which the next attempt or a user sends.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tinker_atropos.trainer.reporting.trackers.step_axis import STEP_KEY, StepAxis
from tinker_atropos.trainer.reporting.trackers.tracker_program import (
    SAMPLES_KEY,
    follow,
    take_the_background,
    tell,
    tell_failure,
)
from tinker_atropos.trainer.reporting.trackers.wandb_folders import (
    LastStep,
    mark_sent,
    send,
    sync_command,
    unsent_folders,
)

INIT_SECONDS = 30.0
"""How long the server may take to answer before the run is recorded offline."""

SEND_SECONDS = 60.0
ANSWER_SECONDS = 2.0


class WandbRecording:
    """The open run. Implements `tracker_program.Recording`."""

    def __init__(self, wandb: Any, run: Any, last_step: LastStep) -> None:
        self._wandb = wandb
        self._run = run
        self._last_step = last_step
        run.define_metric(STEP_KEY)
        run.define_metric("*", step_metric=STEP_KEY)

    def axis(self) -> StepAxis:
        """The axis after what earlier attempts logged."""
        return StepAxis(max(self._last_step.read(), int(self._run.summary.get(STEP_KEY) or 0)))

    def log(self, point: Mapping[str, Any]) -> None:
        self._run.log(point)
        self._last_step.write(int(point[STEP_KEY]))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> Any:
        """Binding makes W&B create an artifact and wait for its server: not done if that cannot be reached."""
        table = self._wandb.Table(columns=columns, data=rows)
        if not self._run.offline and not _answers(self._run.settings.base_url):
            table.bind_to_run(self._run, SAMPLES_KEY, step)
        return table

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(summary)


def main() -> None:
    take_the_background(stdout=2)
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
        recording = WandbRecording(wandb, run, LastStep(folder.parent, run.id))
        exit_code = follow(sys.stdin.buffer, recording.axis(), recording, "W&B")
        _finish(run, folder, exit_code)
    except Exception as error:  # noqa: BLE001 -- the process's edge: the trainer logs it once and continues
        tell_failure(error)
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
    tell(state="running" if online else unsent, url=run.url, if_unsent=unsent)
    return run


def _finish(run: Any, folder: Path, exit_code: int) -> None:
    if run.offline:
        run.finish(exit_code)
        return
    try:
        run.finish(exit_code)
    except TimeoutError:
        tell(state=_unsent_state([folder]), failure="its server has not taken everything")
    else:
        mark_sent(folder, run.id)
        tell(state="finished")


def _answers(base_url: str) -> bool:
    try:
        status = httpx.get(f"{base_url}/healthz", timeout=ANSWER_SECONDS).status_code
    except httpx.HTTPError:
        return False
    return status < 500 and status != 429


def _unsent_state(folders: Sequence[Path]) -> str:
    return f"offline; to send it: {sync_command(folders)}"


if __name__ == "__main__":
    main()
