"""Writes rollout files from a thread of its own, so that training never waits for a disk, and never fails for one."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.rollout_files.background_mirror import BackgroundMirror
from tinker_atropos.rollout_files.bounded_folder import MEGABYTE, BoundedFolder
from tinker_atropos.rollout_files.rollout_store import RolloutStore, open_store
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.rollouts.kept_files import KeptFiles
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, Lines, RolloutLines, encoded
from tinker_atropos.trainer.rollouts.token_pieces import TokenPieces
from tinker_atropos.trainer.rollouts.trained_step import TrainedStep

FIGURES: Final = ("step", "evaluation")
"""Records that are in the file of metrics, too."""

MOST_WAITING: Final = 8
"""Parts of steps that wait to be written. More of them would hold memory that training needs."""

FOR_REPORTS: Final = 4
"""Of these, reports of environments take no more: they must not push out what is trained."""


def rollout_keeper(settings: Settings, config: RunConfig, tokenizer: Tokenizer, folder: Path) -> "RolloutKeeper":
    """The keeper of a run; `folder` is the trainer's own, for runs that name none for their rollouts."""
    run = KeptRun(settings.run_name, settings.run_namespace, settings.run_uid, settings.attempt, config.base_model)
    place = Path(settings.rollouts_dir) if settings.rollouts_dir else folder / "rollouts"
    kept = BoundedFolder(place, config.tinker.keep_rollouts_mb * MEGABYTE)
    mirror = BackgroundMirror(open_store(settings.rollouts_url), kept) if settings.rollouts_url else None
    lines = RolloutLines(run, config.tinker, TokenPieces(tokenizer).of)
    return RolloutKeeper(KeptFiles(kept, run.attempt, mirror=mirror), lines)


class RolloutKeeper:
    """A queue of lines, and the thread that writes them to `files`."""

    def __init__(self, files: KeptFiles, lines: RolloutLines, *, clock: Callable[[], float] = time.time) -> None:
        self.files, self._lines, self._clock = files, lines, clock
        self._refused = 0
        self._work: queue.Queue[tuple[int, Lines] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write_all, name="rollouts", daemon=True)
        if lines.config.keep_rollouts_mb:
            self._thread.start()

    @property
    def store(self) -> RolloutStore:
        """All files of the run, for readers."""
        return self.files.store

    def listing(self) -> dict[str, Any]:
        """For readers: which steps are kept, and what is wrong."""
        return {"every": self.files.every, "note": self.warning}

    @property
    def warning(self) -> str | None:
        """What is wrong, or what was not kept although nothing is."""
        sentence = self.files.note.sentence
        if sentence is None and self._refused:
            return (
                "an environment reports more untrained rollouts than the trainer can read, and those are not kept; "
                f"reports refused so far: {self._refused}"
            )
        return sentence

    @property
    def takes_reports(self) -> bool:
        """Whether one that is about an evaluation and a step, two parts, would be kept."""
        return self._work.qsize() <= FOR_REPORTS - 2

    def refused(self) -> None:
        """A report of an environment is not kept: there are too many, or it is too large."""
        self._refused += 1

    def step_trained(self, step: int, trained: TrainedStep, metrics: Mapping[str, float]) -> None:
        """Keep the rollouts of a step. Returns at once."""
        self._put(step, self._lines.of_step(step, trained, metrics, self._clock()))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep the result of an evaluation of the weights after a step."""
        self._put(step, self._lines.of_evaluation(step, metrics, self._clock()))

    def reported(self, report: RolloutReport, collecting: int) -> None:
        """Keep what an environment reports, while step `collecting` is collected."""
        for step, lines in self._lines.of_report(report, collecting, self._clock()):
            self._put(step, lines, room=FOR_REPORTS)

    def close(self, seconds: float) -> None:
        """Write what waits, for at most so long. Blocks."""
        if self._thread.is_alive():
            give_up = time.monotonic() + seconds
            with contextlib.suppress(queue.Full):
                self._work.put(None, timeout=seconds)
            self._thread.join(max(0.0, give_up - time.monotonic()))
            self.files.close(max(0.0, give_up - time.monotonic()))

    def _put(self, step: int, lines: Lines, room: int = MOST_WAITING) -> None:
        if not self._thread.is_alive():
            return
        if self._work.qsize() < room:  # nobody else puts
            self._work.put_nowait((step, lines))
        else:
            self.files.note.warn(f"rollouts of step {step} were not kept: writing takes longer than training")

    def _write_all(self) -> None:
        while (work := self._work.get()) is not None:
            step, lines = work
            try:
                self._write(step, lines)
            except OSError as error:
                self.files.note.warn(f"rollouts of step {step} were not kept: {error.strerror or error}")
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: no rollout is worth a run
                sentence = f"rollouts of step {step} were not kept: {type(error).__name__}: {error}"
                self.files.note.warn(sentence, error)
        self.files.copy_last_metrics()

    def _write(self, step: int, lines: Lines) -> None:
        kept = self.files.keeps(step)
        figures: list[bytes] = []
        content: list[bytes] = []
        for line in lines:
            written = encoded(line)
            if line["record"] in FIGURES:
                figures.append(written)
            elif not kept:
                break
            content.append(written)
        self.files.write(step, figures, content if kept else None)
