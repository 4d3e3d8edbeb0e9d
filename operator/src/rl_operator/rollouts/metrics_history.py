"""The figures of all steps of a run, put together from files that grow while it trains. Pure.

Each attempt has one file, `metrics-ATTEMPT.jsonl.zst`. An attempt begins at a checkpoint: what earlier ones trained
beyond it was lost, and so are their figures from there on.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rl_contract.rollout_records import MetricsLine, Number, read_metrics_line
from rl_operator.rollouts.file_lines import FileFaults, records_of
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing

MOST_STEPS: Final = 5_000
"""That are kept: more than a screen has columns."""

LONGEST_METRICS_LINE: Final = 2**20
NOT_KNOWN: Final = float("nan")

_NAME: Final = re.compile(r"metrics-(?P<attempt>\d{1,9})\.jsonl\.zst")

Metrics = Mapping[str, Number]
Figures = Mapping[str, Callable[[Metrics], float | None]]
"""What is kept of a record's metrics, by name."""


def metrics_files(listing: RolloutListing) -> dict[int, RolloutFile]:
    """By attempt, the oldest first."""
    found = {int(name["attempt"]): file for file in listing.files if (name := _NAME.fullmatch(file.name))}
    return {attempt: found[attempt] for attempt in sorted(found)}


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One step of one attempt. `time` in seconds since the epoch. NaN: not known."""

    attempt: int
    time: float
    values: "array[float]"


@dataclass
class FigureTable:
    """Rows by step; `figures`: how each column comes out of a record's metrics. `most`: rows that are kept; of more
    steps, first every second one, then every fourth … and always the newest.
    """

    figures: Figures
    most: int = MOST_STEPS
    rows: dict[int, FigureRow] = field(default_factory=dict)
    _stride: int = 1
    _newest: int = -1

    def add(self, attempt: int, line: MetricsLine) -> None:
        old = self.rows.get(line.step)
        if old is not None and old.attempt > attempt:
            return
        values = array("d", (_kept(figure(line.metrics)) for figure in self.figures.values()))
        self.rows[line.step] = FigureRow(attempt, _kept(line.time, 13), values)
        self._thin(line.step)

    def _thin(self, added: int) -> None:
        if added > self._newest:
            if self._newest % self._stride:
                self.rows.pop(self._newest, None)
            self._newest = added
        while len(self.rows) > self.most:
            self._stride *= 2
            kept = (step for step in self.rows if step % self._stride == 0 or step == self._newest)
            self.rows = {step: self.rows[step] for step in kept}

    def forget(self, attempt: int, step: int) -> None:
        """What attempts before this one knew of this step and those after it."""
        for each in [each for each, row in self.rows.items() if each >= step and row.attempt < attempt]:
            del self.rows[each]
        self._newest = max(self.rows, default=-1)

    def columns(self, after: int) -> tuple[list[int], list[float], dict[str, list[float]]]:
        """Steps after this one, when they were, and their figures."""
        steps = sorted(self.rows)
        steps = steps[bisect_right(steps, after) :]
        rows = [self.rows[step] for step in steps]
        names = enumerate(self.figures)
        return steps, [row.time for row in rows], {name: [row.values[at] for row in rows] for at, name in names}


class MetricsHistory:
    """All attempts of a run. `most`: steps that are kept, and evaluations."""

    def __init__(self, of_step: Figures, of_evaluation: Figures, most: int = MOST_STEPS) -> None:
        self.steps = FigureTable(of_step, most)
        self.evaluations = FigureTable(of_evaluation, most)
        self.faults = 0
        """Lines and frames that could not be read."""

        self._read: dict[int, int] = {}
        """Bytes of each attempt's file, up to the end of its last whole frame."""

        self._begins: dict[int, int] = {}

    @property
    def attempt(self) -> int:
        """The newest that has trained a step; 0: none has."""
        return max(self._begins, default=0)

    def unread(self, listing: RolloutListing) -> Iterator[tuple[int, str, int]]:
        """Attempts whose files have grown, the oldest first; the file, and from which byte on it was not read. One that
        became shorter is another one, and begins at 0: a copy may lag behind the trainer's own, which was read before.
        """
        for attempt, file in metrics_files(listing).items():
            read = self._read.get(attempt, 0)
            if file.bytes != read:
                yield attempt, file.name, read if read < file.bytes else 0

    def add(self, attempt: int, content: bytes, begin: int = 0) -> None:
        """`content`: of the attempt's file, from byte `begin` on. A step that is known is replaced."""
        faults = FileFaults(longest_line=LONGEST_METRICS_LINE)
        for _, line in records_of(content, faults, read_metrics_line):
            self._add(attempt, line)
        self._read[attempt] = begin + faults.whole
        self.faults += faults.bad_lines + faults.long_lines

    def _add(self, attempt: int, line: MetricsLine) -> None:
        if any(later > attempt and line.step >= begin for later, begin in self._begins.items()):
            return
        if line.record == "evaluation":
            self.evaluations.add(attempt, line)
        elif line.record == "step":
            if attempt not in self._begins:
                self._begins[attempt] = line.step
                self.steps.forget(attempt, line.step)
                self.evaluations.forget(attempt, line.step)
            self.steps.add(attempt, line)


def _kept(value: float | None, digits: int = 6) -> float:
    return NOT_KNOWN if value is None else float(f"{value:.{digits}g}")
