"""What a check prints: a table for people, or one JSON object (docs/reference/check.md). Once, whatever happens."""

import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from tinker_atropos.check.checks import (
    CLOSE,
    GRADER,
    GROUPS,
    HELD_OUT,
    IMPORT,
    ITEMS,
    LENGTH,
    LOGPROBS,
    MASKS,
    REQUESTS,
    REWARDS,
    ROLLOUTS,
    SETUP,
    SPREAD,
    TOKENS,
    TRAINING,
    Check,
    Finding,
    Verdict,
    counted,
    find,
    worst,
)
from tinker_atropos.check.observations import AnswerSeen, HeldOutOverlap, Observations

CHECKS: Final[tuple[Check, ...]] = (
    *(IMPORT, SETUP, ITEMS, REQUESTS, ROLLOUTS, GROUPS, MASKS, TOKENS, LOGPROBS, LENGTH),
    *(TRAINING, REWARDS, SPREAD, GRADER, HELD_OUT, CLOSE),
)
SHOWN_ANSWERS: Final = 8
SHOWN_CHARACTERS: Final = 200

OutputForm = Literal["text", "json"]


class CheckReport:
    """Reserves stdout for itself: whatever an environment prints goes to stderr."""

    def __init__(self, seen: Observations, form: OutputForm, redact: Callable[[str], str]) -> None:
        self._seen, self._form, self._redact = seen, form, redact
        self._lock = threading.Lock()
        self._closed = False
        self._output = os.dup(1)
        os.dup2(2, 1)

    def close(self) -> bool:
        """Print it, unless it has been. May be called from any thread. Whether it was printed by this call."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            found = findings(self._seen)
            text = as_json(self._seen, found) if self._form == "json" else as_text(self._seen, found)
            left = memoryview(f"{self._redact(text)}\n".encode(errors="replace"))
            while left:
                left = left[os.write(self._output, left) :]
            return True

    @property
    def verdict(self) -> Verdict:
        return worst([each.verdict for each in findings(self._seen)])


def findings(seen: Observations) -> list[Finding]:
    return [find(check, seen) for check in CHECKS]


def as_text(seen: Observations, found: list[Finding]) -> str:
    return "\n".join(_lines(seen, found))


def _lines(seen: Observations, found: list[Finding]) -> Iterator[str]:
    by = f"model {seen.model}" if seen.model is not None else f"scripted answers, seed {seen.seed}"
    groups = f", {counted(seen.groups_asked, 'group')} of {seen.group_size}" if seen.group_size else ""
    tokenizer = f", tokenizer {seen.tokenizer}" if seen.tokenizer else ""
    yield f"{seen.environment}: {by}{groups}{tokenizer}"
    yield ""
    for each in found:
        yield f"  {each.verdict:<8} {each.check:<9} {each.said}"
    group = next((group for group in seen.groups if group.answers), None)
    if group is not None:
        yield ""
        yield f"  one item: {_quoted(group.prompt)}"
        for answer in group.answers[:SHOWN_ANSWERS]:
            kind = f" ({answer.kind})" if answer.kind else ""
            yield f"  {answer.reward:>8.4g} {answer.tokens:>5} tokens  {_quoted(answer.text)}{kind}"
    yield ""
    verdicts = [each.verdict for each in found]
    tally = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(sorted(verdicts)))
    yield f"{worst(verdicts)}: {tally}"


def as_json(seen: Observations, found: list[Finding]) -> str:
    return json.dumps(to_wire(seen, found), indent=2, ensure_ascii=False, allow_nan=False)


def to_wire(seen: Observations, found: list[Finding]) -> dict[str, Any]:
    """Names are stable. What is not known is null."""
    group = next((group for group in seen.groups if group.answers), None)
    return {
        "environment": seen.environment,
        "class": seen.class_name,
        "model": seen.model,
        "seed": seen.seed,
        "tokenizer": seen.tokenizer,
        "verdict": worst([each.verdict for each in found]),
        "checks": [{"check": each.check, "verdict": each.verdict, "said": each.said} for each in found],
        "seconds": {stage: round(seconds, 3) for stage, seconds in seen.seconds.items()},
        "requests": {"by_route": dict(seen.requests), "refused": dict(seen.requests_refused)},
        "groups": _groups(seen),
        "tokens": _tokens(seen),
        "rewards": _rewards(seen),
        "graded": [
            {"kind": each.kind, "answer": each.answer, "reward": each.reward, "certain": each.certain}
            for each in seen.graded
        ],
        "held_out": _held_out(seen),
        "item": None if group is None else {"prompt": group.prompt, "answers": list(map(_answer, group.answers))},
    }


def _groups(seen: Observations) -> dict[str, Any]:
    counters = seen.counters
    return {
        "asked": seen.groups_asked,
        "size": seen.group_size or None,
        "sent": len(seen.groups),
        "refused": len(seen.groups) - len(seen.accepted),
        "unusable": sum(group.unusable is not None for group in seen.accepted),
        "differ": sum(group.teaches for group in seen.accepted),
        "dropped": {str(reason): count for reason, count in counters.filtered_by.items() if count},
        "failed": {str(reason): count for reason, count in counters.failed_by.items() if count},
        "rollouts_scored": sum(len(group.rewards) for group in seen.groups),
        "rollouts_failed": {str(kind): count for kind, count in counters.rollouts.failed_by.items() if count},
        "rollouts_trained": sum(group.trained_rollouts for group in seen.accepted),
    }


def _tokens(seen: Observations) -> dict[str, Any]:
    lengths = [each.tokens for each in seen.sequences]
    known = [each for each in seen.sequences if each.sampled is not None]
    return {
        "mean": round(sum(lengths) / len(lengths), 1) if lengths else None,
        "max": max(lengths, default=None),
        "max_token_length": seen.max_token_length or None,
        "longest_trained": seen.longest_trained or None,
        "all": sum(lengths),
        "trained": sum(each.trained for each in seen.sequences),
        "sampled": sum(each.sampled or 0 for each in known) if known else None,
        "trained_and_sampled": sum(each.trained_sampled for each in known) if known else None,
    }


def _rewards(seen: Observations) -> dict[str, float | None]:
    finite = [reward for group in seen.groups for reward in group.rewards if math.isfinite(reward)]
    if not finite:
        return {"min": None, "max": None, "mean": None}
    return {"min": min(finite), "max": max(finite), "mean": round(sum(finite) / len(finite), 4)}


def _held_out(seen: Observations) -> dict[str, Any] | None:
    """Of the main set, and of others by their names."""
    if seen.held_out is None:
        return None
    main, *others = ((name, _compared(items)) for name, items in seen.held_out.items())
    return main[1] | ({"sets": dict(others)} if others else {})


def _compared(items: HeldOutOverlap) -> dict[str, int]:
    return {
        "items": items.held_out,
        "training_items": items.training,
        "overlap": items.overlap,
        "compared": items.compared,
    }


def _answer(answer: AnswerSeen) -> dict[str, Any]:
    return {"kind": answer.kind, "text": answer.text, "reward": answer.reward, "tokens": answer.tokens}


def _quoted(text: str) -> str:
    short = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    return json.dumps(short, ensure_ascii=False)
