"""The names of rollout files. Pure."""

import re
from typing import Final, NamedTuple

_METRICS: Final = re.compile(r"metrics-(\d{1,9})\.jsonl\.zst", re.ASCII)
_PATTERN: Final = re.compile(r"(\d{6,12})-(\d{1,9})\.jsonl\.zst", re.ASCII)


class StepFile(NamedTuple):
    """Step `step` as attempt `attempt` (from 1) trained it."""

    step: int
    attempt: int

    @property
    def name(self) -> str:
        return f"{self.step:06d}-{self.attempt}.jsonl.zst"


def parse_name(name: str) -> StepFile | None:
    """None for any other file."""
    found = _PATTERN.fullmatch(name)
    return StepFile(int(found[1]), int(found[2])) if found else None


def metrics_name(attempt: int) -> str:
    """The file with the metrics of all steps of an attempt (from 1)."""
    return f"metrics-{attempt}.jsonl.zst"


def is_rollout_file(name: str) -> bool:
    """Whether the name is one of ours."""
    return bool(_PATTERN.fullmatch(name) or _METRICS.fullmatch(name))
