"""The files that a keeper writes: a folder and, if a run has one, the mirror that outlives it."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import zstandard

from tinker_atropos.rollout_files.bounded_folder import BoundedFolder, StepFile, metrics_name
from tinker_atropos.rollout_files.rollout_store import RolloutMirror, RolloutStore

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
