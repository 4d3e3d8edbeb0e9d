"""Names of rollout files, and the files of each step. Pure."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing

_NAME: Final = re.compile(r"(?P<step>\d{1,12})-(?P<attempt>\d{1,9})\.jsonl\.zst")


@dataclass(frozen=True)
class AttemptFile:
    """What one attempt kept of a step."""

    step: int
    attempt: int
    file: RolloutFile


@dataclass(frozen=True)
class StepFiles:
    """All files of a step, of the newest attempt first; at least one."""

    step: int
    files: tuple[AttemptFile, ...]

    @property
    def bytes(self) -> int:
        return sum(each.file.bytes for each in self.files)


def files_by_step(listing: RolloutListing) -> dict[int, StepFiles]:
    """In the order of steps. Files that are named otherwise are none of ours."""
    found = defaultdict[int, list[AttemptFile]](list)
    for file in listing.files:
        if name := _NAME.fullmatch(file.name):
            step = int(name["step"])
            found[step].append(AttemptFile(step, int(name["attempt"]), file))
    newest_first = {step: sorted(files, key=lambda each: -each.attempt) for step, files in found.items()}
    return {step: StepFiles(step, tuple(newest_first[step])) for step in sorted(newest_first)}


def nearest_steps(steps: Sequence[int], wanted: int, count: int = 2) -> list[int]:
    """Of sorted steps, up to `count` before and after the wanted one."""
    at = bisect_left(steps, wanted)
    return list(steps[max(0, at - count) : at + count])
