"""Writes rollout files from a thread of its own, so that training never waits for a disk, and never fails for one."""

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
import zstandard

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.rollout_files.background_mirror import BackgroundMirror
from tinker_atropos.rollout_files.rollout_folder import MEGABYTE, RolloutFolder, StepFile, metrics_name
from tinker_atropos.rollout_files.rollout_store import RolloutMirror, RolloutStore, open_store
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.rollouts.group_records import GroupFacts, Pieces, Record, fate_totals, group_record
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport, UntrainedGroup
from tinker_atropos.trainer.rollouts.token_pieces import TokenPieces
from tinker_atropos.trainer.rollouts.trained_step import TrainedStep, group_facts
from tinker_atropos.trainer.trajectories.deliveries import read_group

FORMAT: Final = 1
LEVEL: Final = 1
"""Of compression: 3 takes longer and, of numbers, makes more bytes."""

FIGURES: Final = ("step", "evaluation")
"""Records that are in the file of metrics, too."""

TOLD: Final = ("components", "messages")
"""Fields of a rollout that hold whatever the environment sent."""

METRICS_SECONDS: Final = 60.0
MOST_WAITING: Final = 8
"""Parts of steps that wait to be written. More of them would hold memory that training needs."""

FOR_REPORTS: Final = 4
"""Of these, reports of environments take no more: they must not push out what is trained."""

OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE

Lines = Iterator[Record]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Whose rollouts they are."""

    run: str
    namespace: str
    uid: str
    attempt: int
    model: str


def rollout_keeper(settings: Settings, config: RunConfig, tokenizer: Tokenizer, folder: Path) -> "RolloutKeeper":
    """The keeper of a run; `folder` is the trainer's own, for runs that name none for their rollouts."""
    run = KeptRun(settings.run_name, settings.run_namespace, settings.run_uid, settings.attempt, config.base_model)
    place = Path(settings.rollouts_dir) if settings.rollouts_dir else folder / "rollouts"
    kept = RolloutFolder(place, config.tinker.keep_rollouts_mb * MEGABYTE)
    mirror = BackgroundMirror(open_store(settings.rollouts_url), kept) if settings.rollouts_url else None
    return RolloutKeeper(kept, run, config.tinker, TokenPieces(tokenizer).of, mirror=mirror)


class RolloutKeeper:
    """`note` is a sentence while something is wrong, else None. `warning` is for people."""

    def __init__(
        self,
        folder: RolloutFolder,
        run: KeptRun,
        config: TrainerSettings,
        pieces: Pieces,
        *,
        mirror: RolloutMirror | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._run, self._config, self._pieces = run, config, pieces
        self._mirror = mirror
        self._counted_earlier = mirror is None
        self._clock = clock
        self._work: queue.Queue[tuple[int, Lines] | None] = queue.Queue(MOST_WAITING)
        self._numbers: defaultdict[tuple[int, str], Iterator[int]] = defaultdict(itertools.count)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.note: str | None = None
        self._refused = 0
        self._metrics_copied_at = 0.0
        self._thread = threading.Thread(target=self._write_all, name="rollouts", daemon=True)
        if config.keep_rollouts_mb:
            self._thread.start()

    @property
    def store(self) -> RolloutStore:
        """All files of the run, for readers."""
        return self._mirror or self.folder

    def listing(self) -> dict[str, Any]:
        """For readers: which steps are kept, and what is wrong."""
        return {"every": self.folder.every, "note": self.warning}

    @property
    def warning(self) -> str | None:
        """What is wrong, or what was not kept although nothing is."""
        if self.note is None and self._refused:
            return (
                "an environment reports more untrained rollouts than the trainer can read, and those are not kept; "
                f"reports refused so far: {self._refused}"
            )
        return self.note

    @property
    def takes_reports(self) -> bool:
        """Whether one that is about an evaluation and a step, two parts, would be kept."""
        return self._work.qsize() <= FOR_REPORTS - 2

    def refused(self) -> None:
        """A report of an environment is not kept: there are too many, or it is too large."""
        self._refused += 1

    def step_trained(self, step: int, trained: TrainedStep, metrics: Mapping[str, float]) -> None:
        """Keep the rollouts of a step. Returns at once."""
        self._put(step, self._step_lines(step, trained, metrics, self._clock()))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep the result of an evaluation of the weights after a step."""
        self._put(step, iter([{"record": "evaluation", "step": step, "time": self._clock(), "metrics": metrics}]))

    def reported(self, report: RolloutReport, collecting: int) -> None:
        """Keep what an environment reports, while step `collecting` is collected."""
        evaluated: defaultdict[int, list[UntrainedGroup]] = defaultdict(list)
        dropped: list[UntrainedGroup] = []
        for group in report.groups:
            (dropped if group.step is None else evaluated[group.step]).append(group)
        for step, groups in evaluated.items():
            self._put(step, self._untrained_lines(step, groups, report.environment), room=FOR_REPORTS)
        if dropped or report.lost:
            lines = self._untrained_lines(collecting, dropped, report.environment)
            self._put(collecting, itertools.chain(lines, _lost_lines(report, self._clock())), room=FOR_REPORTS)

    def close(self, seconds: float) -> None:
        """Write what waits, for at most so long. Blocks."""
        if self._thread.is_alive():
            give_up = time.monotonic() + seconds
            with contextlib.suppress(queue.Full):
                self._work.put(None, timeout=seconds)
            self._thread.join(max(0.0, give_up - time.monotonic()))
            self._close_mirror(max(0.0, give_up - time.monotonic()))

    def _close_mirror(self, seconds: float) -> None:
        if self._mirror is None:
            return
        try:
            self._mirror.close(seconds)
        except OSError as error:
            self._warn(str(error))

    def _put(self, step: int, lines: Lines, room: int = MOST_WAITING) -> None:
        if not self._thread.is_alive():
            return
        if self._work.qsize() < room:  # nobody else puts
            self._work.put_nowait((step, lines))
        else:
            self._warn(f"rollouts of step {step} were not kept: writing takes longer than training")

    def _write_all(self) -> None:
        while (work := self._work.get()) is not None:
            step, lines = work
            try:
                self._write(step, lines)
            except OSError as error:
                self._warn(f"rollouts of step {step} were not kept: {error.strerror or error}")
            except Exception as error:  # the edge of the thread: no rollout is worth a run
                if self.note is None:
                    logger.exception("rollouts of step %d were not kept", step)
                self.note = f"rollouts of step {step} were not kept: {type(error).__name__}: {error}"
        self._copy_last_metrics()

    def _write(self, step: int, lines: Lines) -> None:
        self._count_earlier()
        kept = self.folder.keeps(step)
        figures: list[bytes] = []
        content: list[bytes] = []
        for line in lines:  # one by one: as objects, the tokens of a large step take ten times their bytes
            encoded = _encoded(line)
            if line["record"] in FIGURES:
                figures.append(encoded)
            elif not kept:
                break
            content.append(encoded)
        changed: list[str] = []
        removed: list[str] = []
        if figures:
            changed += self._due(self.folder.append_metrics(self._run.attempt, self._compressed(figures)))
        if kept:
            file = StepFile(step, self._run.attempt)
            removed = self.folder.append(file, self._compressed(content))
            changed.append(file.name)
        self.note = None
        self._copy([name for name in changed if name not in removed], removed)

    def _count_earlier(self) -> None:
        """What earlier attempts left in the mirror takes room, too; it is counted as soon as it is known."""
        if self._mirror is None or self._counted_earlier or (earlier := self._mirror.earlier) is None:
            return
        self._counted_earlier = True
        self._copy([], self.folder.count(earlier))

    def _compressed(self, lines: list[bytes]) -> bytes:
        """One frame."""
        return self._compressor.compress(b"".join(lines))

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
                self._warn(f"{name} was not copied: {error.strerror or error}")

    def _due(self, metrics_file: str) -> list[str]:
        """The file, if it is to be copied. Not each time: all of it is."""
        if self._clock() - self._metrics_copied_at < METRICS_SECONDS:
            return []
        self._metrics_copied_at = self._clock()
        return [metrics_file]

    def _copy_last_metrics(self) -> None:
        try:
            self._copy([name for name in self.folder.names() if name == metrics_name(self._run.attempt)])
        except OSError as error:
            self._warn(f"the last metrics were not copied: {error.strerror or error}")

    def _warn(self, sentence: str) -> None:
        if self.note is None:
            logger.warning("%s", sentence)
        self.note = sentence

    # The lines of a file, made in the thread.

    def _step_lines(self, step: int, trained: TrainedStep, metrics: Mapping[str, float], at: float) -> Lines:
        found = list(group_facts(trained, self._config))
        run = {"run": self._run.run, "namespace": self._run.namespace, "uid": self._run.uid}
        yield {
            "record": "step", "format": FORMAT, **run, "attempt": self._run.attempt, "model": self._run.model,
            "step": step, "time": at, "metrics": metrics, "tokens": fate_totals(found),
        }  # fmt: skip
        for facts in found:
            if facts.fate == "dropped":  # the environment's are in the same file
                facts = replace(facts, number=next(self._numbers[step, "dropped"]))  # noqa: PLW2901
            yield group_record(facts, self._pieces)

    def _untrained_lines(self, step: int, groups: Sequence[UntrainedGroup], environment: int) -> Lines:
        for untrained in groups:
            number = next(self._numbers[step, untrained.fate])
            yield group_record(_facts(untrained, number, environment), self._pieces)


def _encoded(record: Record) -> bytes:
    """A line. What an environment says besides is left out if it cannot be written, such as lists in 300 lists."""
    try:
        return orjson.dumps(record, option=OPTIONS)
    except orjson.JSONEncodeError:
        plain = {name: value for name, value in record.items() if name != "item"}
        if rollouts := record.get("rollouts"):
            plain["rollouts"] = [
                {name: value for name, value in rollout.items() if name not in TOLD} for rollout in rollouts
            ]
        return orjson.dumps(plain, option=OPTIONS)


def _facts(untrained: UntrainedGroup, number: int, environment: int) -> GroupFacts:
    told = untrained.group.model_dump()
    group = read_group(told | {"scores": [math.nan if score is None else score for score in told["scores"]]})
    return GroupFacts(
        replace(group, story=replace(group.story, environment=environment)), untrained.fate, number,
        reason=untrained.reason, why=untrained.why, step=untrained.step, sets=untrained.sets, greedy=untrained.greedy,
    )  # fmt: skip


def _lost_lines(report: RolloutReport, at: float) -> Lines:
    for lost in report.lost:
        told = {"record": "lost", **lost.model_dump(exclude_none=True)}
        yield told | {"environment": report.environment, "time": at}
