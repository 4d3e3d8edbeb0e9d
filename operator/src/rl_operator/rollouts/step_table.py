"""All steps that there are, in a row each: read once, and no more of each line than a row needs. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rl_contract.rollout_records import BadLineError, LineHead, read_head
from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.file_lines import FileFaults, lines_of
from rl_operator.rollouts.rollout_figures import finite
from rl_operator.rollouts.rollout_query import RolloutSteps
from rl_operator.rollouts.rollout_source import RolloutSource, StepFiles
from rl_operator.rollouts.step_reading import REWARD
from rl_operator.rollouts.token_ledger import FATE_WORDS, UNKNOWN, is_arrived

LOST: Final = "lost"


@dataclass
class StepRow:
    """`counts`: of groups by fate, and of what was lost. `reward`: None if the step was not trained."""

    step: int
    bytes: int
    attempts: tuple[int, ...]
    reward: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    """Lines and frames that could not be read."""


def step_rows(source: RolloutSource, steps: RolloutSteps) -> Iterator[StepRow]:
    """In the order of steps, each as soon as it has been read."""
    for files in steps.steps.values():
        yield _row(source, files)


def _row(source: RolloutSource, files: StepFiles) -> StepRow:
    row = StepRow(files.step, files.bytes, tuple(file.attempt for file in reversed(files.files)))
    trained_by: int | None = None
    for file in files.files:
        for head in _heads(source, file.file.name, row):
            if head.record == "step" and trained_by is None:
                trained_by, row.reward = file.attempt, finite(head.metrics.get(REWARD))
            elif head.record == LOST:
                row.counts[LOST] += head.count
            elif head.record == "group" and (
                trained_by in (None, file.attempt) or not is_arrived(head.fate, head.reason)
            ):
                row.counts[head.fate if head.fate in FATE_WORDS else UNKNOWN] += 1
    return row


def _heads(source: RolloutSource, name: str, row: StepRow) -> Iterator[LineHead]:
    faults = FileFaults()
    try:
        content = source.content(name)
    except GoneError:
        row.faults += 1
        return
    for line in lines_of(content, faults):
        try:
            yield read_head(line)
        except BadLineError:
            faults.bad_lines += 1
    row.faults += faults.count
