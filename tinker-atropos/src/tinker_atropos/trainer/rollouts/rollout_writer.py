"""Writes rollout files from a thread of its own, so that training never waits for a disk, and never fails for one.

The files are a folder and, if a run has one, the mirror that outlives it.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import zstandard

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.rollout_files.background_mirror import BackgroundMirror
from tinker_atropos.rollout_files.bounded_folder import MEGABYTE, BoundedFolder, StepFile, metrics_name
from tinker_atropos.rollout_files.rollout_store import RolloutMirror, RolloutStore, open_store
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.rollouts.group_records import TrainedStep
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, Lines, RolloutLines, TokenPieces, encoded

LEVEL: Final = 1
"""Of compression: 3 takes longer and, of numbers, makes more bytes."""

METRICS_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class KeepingNote:
    """What is wrong with keeping rollouts, as one sentence, of which the log has a line; None while nothing is."""

    def __init__(self) -> None:
        self.sentence: str | None = None

    def warn(self, sentence: str, defect: Exception | None = None) -> None:
        """With a defect, the log has its traceback."""
        if self.sentence is None:
            logger.log(logging.ERROR if defect else logging.WARNING, "%s", sentence, exc_info=defect)
        self.sentence = sentence

    def clear(self) -> None:
        """Something was kept again."""
        self.sentence = None


class KeptFiles:
    """What one attempt keeps. Used by the keeper's thread, but for `store` and `every`, which readers use.

    A mirror that fails is a note: the folder has the files all the same.
    """

    def __init__(
        self,
        folder: BoundedFolder,
        attempt: int,
        *,
        mirror: RolloutMirror | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self._attempt, self._mirror, self._clock = folder, attempt, mirror, clock
        self.note = KeepingNote()
        self._counted_earlier = mirror is None
        self._metrics_copied_at = 0.0
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)

    @property
    def store(self) -> RolloutStore:
        """All files of the run, for readers."""
        return self._mirror or self.folder

    @property
    def every(self) -> int:
        """Files of steps that this divides are kept."""
        return self.folder.every

    def keeps(self, step: int) -> bool:
        self._count_earlier()
        return self.folder.keeps(step)

    def write(self, step: int, figures: Sequence[bytes], content: Sequence[bytes] | None) -> None:
        """Add lines to the file of metrics, and to the step's unless it is not kept. Raises OSError."""
        changed: list[str] = []
        removed: list[str] = []
        if figures:
            changed += self._due(self.folder.append_metrics(self._attempt, self._compressed(figures)))
        if content is not None:
            file = StepFile(step, self._attempt)
            removed = self.folder.append(file, self._compressed(content))
            changed.append(file.name)
        self.note.clear()
        self._copy([name for name in changed if name not in removed], removed)

    def copy_last_metrics(self) -> None:
        try:
            self._copy([name for name in self.folder.names() if name == metrics_name(self._attempt)])
        except OSError as error:
            self.note.warn(f"the last metrics were not copied: {error.strerror or error}")

    def close(self, seconds: float) -> None:
        """Let the mirror copy what is left, for at most so long. Blocks."""
        if self._mirror is None:
            return
        try:
            self._mirror.close(seconds)
        except OSError as error:
            self.note.warn(str(error))

    def _count_earlier(self) -> None:
        """What earlier attempts left in the mirror takes room, too; it is counted as soon as it is known."""
        if self._mirror is None or self._counted_earlier or (earlier := self._mirror.earlier) is None:
            return
        self._counted_earlier = True
        self._copy([], self.folder.count(earlier))

    def _compressed(self, lines: Sequence[bytes]) -> bytes:
        """One frame."""
        return self._compressor.compress(b"".join(lines))

    def _due(self, metrics_file: str) -> list[str]:
        """The file, if it is to be copied. Not each time: all of it is."""
        if self._clock() - self._metrics_copied_at < METRICS_SECONDS:
            return []
        self._metrics_copied_at = self._clock()
        return [metrics_file]

    def _copy(self, changed: Sequence[str], removed: Sequence[str] = ()) -> None:
        """The mirror is asked for all of it even while it fails: it may do later what it was asked for."""
        if self._mirror is None:
            return
        for name in (*removed, *changed):
            try:
                if name in removed:
                    self._mirror.delete(name)
                else:
                    self._mirror.put(name, self.folder.read(name))
            except OSError as error:
                self.note.warn(f"{name} was not copied: {error.strerror or error}")


FIGURES: Final = ("step", "evaluation")
"""Records that are in the file of metrics, too."""

MOST_WAITING: Final = 8
"""Parts of steps that wait to be written. More of them would hold memory that training needs."""

FOR_REPORTS: Final = 4
"""Of these, reports of environments take no more: they must not push out what is trained."""


def rollout_writer(settings: Settings, config: RunConfig, tokenizer: Tokenizer, folder: Path) -> "RolloutWriter":
    """The keeper of a run; `folder` is the trainer's own, for runs that name none for their rollouts."""
    run = KeptRun(settings.run_name, settings.run_namespace, settings.run_uid, settings.attempt, config.base_model)
    place = Path(settings.rollouts_dir) if settings.rollouts_dir else folder / "rollouts"
    kept = BoundedFolder(place, config.tinker.keep_rollouts_mb * MEGABYTE)
    mirror = BackgroundMirror(open_store(settings.rollouts_url), kept) if settings.rollouts_url else None
    lines = RolloutLines(run, config.tinker, TokenPieces(tokenizer).of)
    return RolloutWriter(KeptFiles(kept, run.attempt, mirror=mirror), lines)


class RolloutWriter:
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

    def listing(self) -> dict[str, object]:
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
