"""W&B in a process of its own: `python -m tinker_atropos.trainer.reporting.trackers.wandb_program SETTINGS`.

Points are read as JSON lines from stdin, whose end finishes the run; states are written as JSON lines to stdout. When
its server does not answer, wandb blocks for minutes and delays the exit of its process, which is harmless here. What
the server does not accept stays on disk: a folder per attempt, which the next attempt or a user sends with `wandb
sync`. Every row keeps its number (`_step`) in the folder, so sending a folder again creates no duplicates.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

STEP_KEY = "train/step"
REPORTED_STEP_KEY = "env/step"
"""The environment's own step, in a report that arrives when the last trained step is another one."""

Point = dict[str, float]


@dataclass
class StepAxis:
    """The axis never goes back, across rebuilds and attempts.

    `before` is the last step that earlier attempts logged, `last` the newest of all; `replayed` counts what is not
    logged again.
    """

    before: int
    last: int = field(init=False)
    replayed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.last = self.before

    def trained(self, step: int, metrics: Mapping[str, float]) -> Point | None:
        """The point of a trained step; None for one that is trained again and was logged before."""
        if step <= self.last:
            self.replayed += 1
            return None
        self.last = step
        return {STEP_KEY: step, **metrics}

    def reported(self, step: int | None, metrics: Mapping[str, float]) -> Point | None:
        """The point of an environment's report; None for a step that an earlier attempt reported."""
        if step is not None and step < self.before:
            self.replayed += 1
            return None
        own = {} if step in (None, self.last) else {REPORTED_STEP_KEY: float(step or 0)}
        return {STEP_KEY: self.last, **own, **metrics}


INIT_SECONDS = 30.0
"""How long the server may take to answer before the run is recorded offline."""

SEND_SECONDS = 60.0
ANSWER_SECONDS = 2.0

NICE = 10
"""W&B's processes yield to the trainer where they share its cores."""

SAMPLES_KEY = "samples"

EMPTY_LOG_BYTES = 7
"""A log with only its header: the server never accepted the run, and `wandb sync` stops at such a folder."""

SYNC_ARGUMENTS = ("sync", "--yes", "--include-online")

_TELLING = os.fdopen(os.dup(1), "wb", buffering=0)
"""Our own standard output: processes that W&B starts would inherit fd 1, and keep it open after this process has
exited.
"""


class LastStep:
    """The last step on the axis, on disk: for when the server that knows it cannot be reached."""

    def __init__(self, wandb_folder: Path, run_id: str) -> None:
        self._path = wandb_folder / f"last-step-{run_id}"

    def read(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(self._path.read_text(encoding="ascii"))
        return 0

    def write(self, step: int) -> None:
        with contextlib.suppress(OSError):
            self._path.write_text(str(step), encoding="ascii")


class WandbRecording:
    """The open run."""

    def __init__(self, wandb: Any, run: Any, last_step: LastStep) -> None:
        self._wandb = wandb
        self._run = run
        self._last_step = last_step
        self._axis = StepAxis(max(last_step.read(), int(run.summary.get(STEP_KEY) or 0)))
        run.define_metric(STEP_KEY)
        run.define_metric("*", step_metric=STEP_KEY)

    def follow(self, lines: Iterable[bytes]) -> int:
        """Log what arrives; returns the exit code that the run ends with: 1, unless a message sets another."""
        exit_code = 1
        for line in lines:
            match json.loads(line):
                case {"step": step, "metrics": metrics, "samples": samples}:
                    if (trained := self._axis.trained(step, metrics)) is not None:
                        self._log(trained, {SAMPLES_KEY: self._table(samples, step)} if samples else {})
                case {"reported_step": step, "metrics": metrics}:
                    if (reported := self._axis.reported(step, metrics)) is not None:
                        self._log(reported)
                case {"summary": summary, "exit_code": exit_code}:
                    self._run.summary.update(summary)
        if self._axis.replayed:
            tell(note=f"{self._axis.replayed} points are in W&B since they were first trained: not logged again")
        return exit_code

    def _log(self, point: Point, table: Mapping[str, Any] | None = None) -> None:
        self._run.log({**point, **(table or {})})
        self._last_step.write(int(point[STEP_KEY]))

    def _table(self, samples: Mapping[str, Any], step: int) -> Any:
        """Binding makes W&B create an artifact and wait for its server: not done if that cannot be reached."""
        table = self._wandb.Table(columns=samples["columns"], data=samples["data"])
        if not self._run.offline and not _answers(self._run.settings.base_url):
            table.bind_to_run(self._run, SAMPLES_KEY, step)
        return table


def tell(**told: str | None) -> None:
    _TELLING.write(json.dumps(told).encode() + b"\n")


def main() -> None:
    os.dup2(2, 1)  # what W&B prints is nothing for the trainer
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
        recording = WandbRecording(wandb, run, LastStep(folder.parent, run.id))
        exit_code = recording.follow(sys.stdin.buffer)
        _finish(run, folder, exit_code)
    except Exception as error:  # noqa: BLE001 -- the process's edge: the trainer logs it once and continues
        tell(failure=f"{type(error).__name__}: {error}".splitlines()[0])
        os._exit(1)  # W&B would keep trying to reach its server for minutes


def _open(wandb: Any, wanted: Mapping[str, Any], settings: Any) -> Any:
    """The run, resumed where its earlier attempts ended.

    Raises if the server does not accept it, or has not accepted what earlier attempts left, which is sent first.
    """
    wandb_folder, run_id = Path(wandb.setup().settings.wandb_dir), wanted["id"]
    earlier, online = _unsent_folders(wandb_folder, run_id), wanted["mode"] == "online"
    if online and earlier and (left := _send(earlier, run_id, SEND_SECONDS)):
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
        with contextlib.suppress(OSError):
            _mark(folder, run.id).touch()
        tell(state="finished")


def _answers(base_url: str) -> bool:
    try:
        status = httpx.get(f"{base_url}/healthz", timeout=ANSWER_SECONDS).status_code
    except httpx.HTTPError:
        return False
    return status < 500 and status != 429


def _unsent_state(folders: Sequence[Path]) -> str:
    return f"offline; to send it: {shlex.join(['wandb', *SYNC_ARGUMENTS, *map(str, folders)])}"


def _unsent_folders(wandb_folder: Path, run_id: str) -> list[Path]:
    """The folders of earlier attempts that may hold what the server does not have, oldest first."""
    named = [*wandb_folder.glob(f"run-*-{run_id}"), *wandb_folder.glob(f"offline-run-*-{run_id}")]
    unsent = [folder for folder in named if _has_rows(folder, run_id) and not _mark(folder, run_id).exists()]
    return sorted(unsent, key=lambda folder: folder.name.removeprefix("offline-"))


def _send(folders: Sequence[Path], run_id: str, seconds: float) -> list[Path]:
    """Send the folders, for at most `seconds`; returns those that were not sent."""
    command = [sys.executable, "-m", "wandb", *SYNC_ARGUMENTS, *map(str, folders)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603 -- W&B's own command line
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    return [folder for folder in folders if not _mark(folder, run_id).exists()]


def _has_rows(folder: Path, run_id: str) -> bool:
    log = folder / f"run-{run_id}.wandb"
    return log.exists() and log.stat().st_size > EMPTY_LOG_BYTES


def _mark(folder: Path, run_id: str) -> Path:
    """Of a folder that is sent, as `wandb sync` marks it."""
    return folder / f"run-{run_id}.wandb.synced"


if __name__ == "__main__":
    main()
