"""What W&B leaves on disk: a folder per attempt, from which `wandb sync` can send what the server does not have.

Every row keeps its number (`_step`) in the folder, so sending a folder again creates no duplicates.
"""

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EMPTY_LOG_BYTES = 7
"""A log with only its header: the server never accepted the run, and `wandb sync` stops at such a folder."""

SYNC_ARGUMENTS = ("sync", "--yes", "--include-online")


def unsent_folders(wandb_folder: Path, run_id: str) -> list[Path]:
    """The folders of earlier attempts that may hold what the server does not have, oldest first."""
    named = [*wandb_folder.glob(f"run-*-{run_id}"), *wandb_folder.glob(f"offline-run-*-{run_id}")]
    unsent = [folder for folder in named if _has_rows(folder, run_id) and not _mark(folder, run_id).exists()]
    return sorted(unsent, key=lambda folder: folder.name.removeprefix("offline-"))


def mark_sent(folder: Path, run_id: str) -> None:
    """Mark a folder as sent, as `wandb sync` does."""
    with contextlib.suppress(OSError):
        _mark(folder, run_id).touch()


def sync_command(folders: Sequence[Path]) -> str:
    """The shell command that sends the folders."""
    return shlex.join(["wandb", *SYNC_ARGUMENTS, *map(str, folders)])


def send(folders: Sequence[Path], run_id: str, seconds: float) -> list[Path]:
    """Send the folders, for at most `seconds`; returns those that were not sent."""
    command = [sys.executable, "-m", "wandb", *SYNC_ARGUMENTS, *map(str, folders)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603 -- W&B's own command line
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    return [folder for folder in folders if not _mark(folder, run_id).exists()]


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


def _has_rows(folder: Path, run_id: str) -> bool:
    log = folder / f"run-{run_id}.wandb"
    return log.exists() and log.stat().st_size > EMPTY_LOG_BYTES


def _mark(folder: Path, run_id: str) -> Path:
    return folder / f"run-{run_id}.wandb.synced"
