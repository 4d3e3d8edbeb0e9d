"""Writes rollout files from a thread of its own, so that training never waits for a disk, and never fails for one.

The files are a folder and, if a run has one, the mirror that outlives it.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import zstandard

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.disk_room import FULL_SECONDS, WAITED_FOR, error_sentence
from tinker_atropos.rollout_files.rollout_server import open_store
from tinker_atropos.rollout_files.rollout_store import (
    MEGABYTE,
    BackgroundMirror,
    BoundedFolder,
    RolloutStore,
    StepFile,
    metrics_name,
)
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, Lines, RolloutLines, TrainedStep, encoded
from tinker_atropos.trainer.rollouts.token_pieces import TokenPieces

LEVEL: Final = 1
"""Of compression: 3 takes longer and, of numbers, makes more bytes."""

METRICS_SECONDS: Final = 60.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


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
    return RolloutWriter(kept, lines, mirror=mirror)


class RolloutWriter:
    """A queue of lines, and the thread that writes them to `folder`. A mirror that fails is a note: the folder has the
    files all the same.
    """

    def __init__(
        self,
        folder: BoundedFolder,
        lines: RolloutLines,
        *,
        mirror: BackgroundMirror | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._lines, self._mirror, self._clock = folder, lines, mirror, clock
        self._trouble: str | None = None
        self._full: str | None = None  # while it waits for room
        self._closing = threading.Event()
        self._refused = 0
        self._counted_earlier = mirror is None
        self._metrics_copied_at = 0.0
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._work: queue.Queue[tuple[int, Lines] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write_all, name="rollouts", daemon=True)
        if lines.config.keep_rollouts_mb:
            self._thread.start()

    @property
    def store(self) -> RolloutStore:
        """All files of the run, for readers."""
        return self._mirror or self._folder

    def listing(self) -> dict[str, object]:
        """For readers: files of steps that `every` divides are kept, and what is wrong."""
        return {"every": self._folder.every, "note": self.warning}

    @property
    def warning(self) -> str | None:
        """What is wrong, or what was not kept although nothing is."""
        if self._trouble is None and self._refused:
            return (
                "an environment reports more untrained rollouts than the trainer can read, and those are not kept; "
                f"reports refused so far: {self._refused}"
            )
        return self._trouble

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
        """Write what waits, if there is room, and copy it, for at most so long. Blocks."""
        if not self._thread.is_alive():
            return
        self._closing.set()
        give_up = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._work.put(None, timeout=seconds)
        self._thread.join(max(0.0, give_up - time.monotonic()))
        if self._mirror is not None:
            try:
                self._mirror.close(max(0.0, give_up - time.monotonic()))
            except OSError as error:
                self._warn(str(error))

    def _put(self, step: int, lines: Lines, room: int = MOST_WAITING) -> None:
        if not self._thread.is_alive():
            return
        if self._work.qsize() < room:  # nobody else puts
            self._work.put_nowait((step, lines))
        else:
            self._warn(f"rollouts of step {step} were not kept: {self._full or 'writing takes longer than training'}")

    def _warn(self, sentence: str, defect: Exception | None = None) -> None:
        """Until something is kept again; of each trouble the log has a line, of a defect with its traceback."""
        if self._trouble is None:
            logger.log(logging.ERROR if defect else logging.WARNING, "%s", sentence, exc_info=defect)
        self._trouble = sentence

    # In the thread.

    def _write_all(self) -> None:
        while (work := self._work.get()) is not None:
            step, lines = work
            try:
                self._write(step, lines)
            except OSError as error:
                self._warn(f"rollouts of step {step} were not kept: {error_sentence(error)}")
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: no rollout is worth a run
                self._warn(f"rollouts of step {step} were not kept: {type(error).__name__}: {error}", error)
        self._copy([metrics_name(self._attempt)])

    def _write(self, step: int, lines: Lines) -> None:
        """Add lines to the file of metrics, and to the step's unless it is not kept. Raises OSError."""
        self._count_earlier()
        kept = self._folder.keeps(step)
        figures: list[bytes] = []
        content: list[bytes] = []
        for line in lines:
            written = encoded(line)
            if line["record"] in FIGURES:
                figures.append(written)
            elif not kept:
                break
            content.append(written)
        changed: list[str] = []
        removed: list[str] = []
        if figures:
            changed += self._due(
                self._with_room(partial(self._folder.append_metrics, self._attempt, self._frame(figures)))
            )
        if kept:
            file = StepFile(step, self._attempt)
            removed = self._with_room(partial(self._folder.append, file, self._frame(content)))
            changed.append(file.name)
        self._trouble = None
        self._copy([name for name in changed if name not in removed], removed)

    def _with_room(self, append: Callable[[], T]) -> T:
        """A disk that is full is waited for until the end of the run: MOST_WAITING bounds what waits behind it."""
        try:
            while True:
                try:
                    return append()
                except OSError as error:
                    if error.errno not in WAITED_FOR or self._closing.is_set():
                        raise
                    if self._full is None:
                        self._full = error_sentence(error)
                        self._warn(f"rollouts wait for room: {self._full}")
                self._closing.wait(FULL_SECONDS)
        finally:
            self._full = None

    @property
    def _attempt(self) -> int:
        return self._lines.run.attempt

    def _frame(self, lines: Sequence[bytes]) -> bytes:
        return self._compressor.compress(b"".join(lines))

    def _due(self, metrics_file: str) -> list[str]:
        """The file, if it is to be copied. Not each time: all of it is."""
        if self._clock() - self._metrics_copied_at < METRICS_SECONDS:
            return []
        self._metrics_copied_at = self._clock()
        return [metrics_file]

    def _count_earlier(self) -> None:
        """What earlier attempts left in the mirror takes room, too; it is counted as soon as it is known."""
        if self._mirror is None or self._counted_earlier or (earlier := self._mirror.earlier) is None:
            return
        self._counted_earlier = True
        self._copy([], self._folder.count(earlier))

    def _copy(self, changed: Sequence[str], removed: Sequence[str] = ()) -> None:
        """The mirror is asked for all of it even while it fails: it may do later what it was asked for."""
        if self._mirror is None:
            return
        for name in (*removed, *changed):
            try:
                self._mirror.ask(name, gone=name in removed)
            except OSError as error:
                self._warn(f"{name} was not copied: {error_sentence(error)}")
