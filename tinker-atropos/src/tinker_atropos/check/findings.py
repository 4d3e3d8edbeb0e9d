"""What a check finds: one finding for each thing that is checked, always all of them, in one order. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tinker_atropos.check.observations import Observations, Stage

Verdict = Literal["ok", "warning", "failed", "unknown"]
"""`unknown`: there was nothing to judge by, and the finding's sentence says what would help."""

Judgment = tuple[Verdict, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """`said` is one sentence: what was seen and, unless all is well, what to do."""

    check: str
    verdict: Verdict
    said: str


@dataclass(frozen=True, slots=True)
class Check:
    """`judge` is asked once there is something to judge: None from it means that there is not. A stage of the check
    `owns` its failures: what broke it is this check's finding.
    """

    name: str
    judge: Callable[[Observations], Judgment | None]
    owns: Stage | None = None


NOT_REACHED: Judgment = ("unknown", "not reached")
NOTHING_SENT: Judgment = ("unknown", "there is no group to judge by")


def find(check: Check, seen: Observations) -> Finding:
    if check.owns is not None and check.owns in seen.broken:
        return Finding(check.name, "failed", seen.broken[check.owns])
    return Finding(check.name, *(check.judge(seen) or (NOTHING_SENT if seen.stage == "done" else NOT_REACHED)))


def worst(verdicts: list[Verdict]) -> Verdict:
    """Of the whole check. What is unknown counts only if nothing else is known."""
    ranked: tuple[Verdict, ...] = ("failed", "warning", "ok")
    return next((verdict for verdict in ranked if verdict in verdicts), "unknown")


def counted(number: int, noun: str) -> str:
    """`1 group`, `3 groups`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
