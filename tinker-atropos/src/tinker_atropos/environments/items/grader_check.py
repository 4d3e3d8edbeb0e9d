"""Is a grader to be trusted? It must not pay for nothing, and must pay for the right answer.

Some answers to a few held-out items are scored before anything is trained: an empty one, wrong ones and, where the item
has one, the gold answer. A policy finds a grader that pays for nothing within a few steps.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from tinker_atropos.environments.rollout.failures import describe

logger = logging.getLogger(__name__)

ITEMS: Final = 8
SHOWN: Final = 80
"""Characters of an answer that a warning quotes."""

PAID: Final = 0.5
"""The reward from which on a wrong answer is paid for. Many graders give a little for the right format."""

AnswerKind = Literal["empty", "wrong", "gold"]


class Graded(Protocol):
    """What is asked of an environment here: all that derive from `base.py` have it."""

    def held_out_items(self) -> Sequence[object]: ...

    def gold_answer(self, item: object, /) -> str | None: ...

    def wrong_answers(self, item: object, /) -> Sequence[str]: ...

    async def score_answer(self, item: Any, answer: str, /) -> float | None: ...

    def is_correct(self, score: float, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    kind: AnswerKind
    answer: str
    reward: float


async def grade(env: Graded, items: Iterable[object]) -> list[GradedAnswer]:
    """The answers' rewards; empty if the environment scores only whole rollouts. Raises what the grader raises."""
    graded: list[GradedAnswer] = []
    for item in items:
        gold = env.gold_answer(item)
        answers: list[tuple[AnswerKind, str | None]] = [("empty", ""), ("gold", gold)]
        answers += [("wrong", each) for each in env.wrong_answers(item)]
        for kind, answer in answers:
            if answer is None or (kind != "gold" and answer == gold):  # of some items nothing is the right answer
                continue
            reward = await env.score_answer(item, answer)
            if reward is not None:
                graded.append(GradedAnswer(kind, answer, reward))
    return graded


async def warnings_about_grader(env: Graded, source: Path) -> tuple[str, ...]:
    """What is wrong with an environment's grader, for the log and the run's status."""
    try:
        graded = await grade(env, env.held_out_items()[:ITEMS])
    except Exception as error:  # noqa: BLE001 -- the author's code: rollouts will show whether it always raises
        logger.warning("the grader could not be checked: %s", describe(error, source))
        return ()
    warnings = tuple(grader_warnings(graded, env.is_correct))
    for warning in warnings:
        logger.warning("%s", warning)
    return warnings


def grader_warnings(graded: Iterable[GradedAnswer], is_correct: Callable[[float], bool]) -> list[str]:
    """Sentences about what a trustworthy grader would not do; at most one for each kind of answer."""
    by_kind: dict[AnswerKind, list[GradedAnswer]] = {}
    for each in graded:
        by_kind.setdefault(each.kind, []).append(each)
    rejected = _sentence(
        [(each, not is_correct(each.reward)) for each in by_kind.pop("gold", [])],
        "the grader gives {reward:g} to the right answer {answer!r} ({faults} of {n} items): nobody can learn what it "
        "never pays for",
    )
    paid = [
        _sentence(
            [(each, each.reward >= PAID) for each in answers],
            "the grader pays {reward:g} for the worthless answer {answer!r} ({faults} of {n} tries): the policy will "
            "learn to give no other",
        )
        for answers in by_kind.values()
    ]
    return [sentence for sentence in (*paid, rejected) if sentence]


def _sentence(judged: Sequence[tuple[GradedAnswer, bool]], text: str) -> str | None:
    """With the first fault; None if there is none."""
    faults = [answer for answer, is_fault in judged if is_fault]
    if not faults:
        return None
    shown = faults[0].answer[:SHOWN]
    return text.format(reward=faults[0].reward, answer=shown, faults=len(faults), n=len(judged))
