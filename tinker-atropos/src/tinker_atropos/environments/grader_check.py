"""Is a grader to be trusted? It must not pay for nothing, and must pay for the right answer.

Three answers to a few held-out items are scored before anything is trained: an empty one, a wrong one and, where the
item has one, the gold answer. A policy finds a grader that pays for nothing within a few steps.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tinker_atropos.environments.failures import describe

if TYPE_CHECKING:  # it imports atroposlib, which finds our `wandb` only if that was installed before
    from tinker_atropos.environments.base import SampledEnvironment

logger = logging.getLogger(__name__)

ITEMS: Final = 4
PAID: Final = 0.5
"""The reward from which on a wrong answer is paid for. Many graders give a little for the right format."""

AnswerKind = Literal["empty", "wrong", "gold"]


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    kind: AnswerKind
    answer: str
    reward: float


async def grade(env: "SampledEnvironment[Any]", items: Iterable[Any]) -> list[GradedAnswer]:
    """The answers' rewards; empty if the environment scores only whole rollouts. Raises what the grader raises."""
    graded: list[GradedAnswer] = []
    for item in items:
        gold = env.gold_answer(item)
        answers: dict[AnswerKind, str] = {"empty": "", "wrong": env.wrong_answer(item)}
        if gold is not None:
            answers["gold"] = gold
        for kind, answer in answers.items():
            reward = await env.score_answer(item, answer)
            if reward is not None:
                graded.append(GradedAnswer(kind, answer, reward))
    return graded


async def warnings_about_grader(env: "SampledEnvironment[Any]", source: Path) -> tuple[str, ...]:
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
    rewards: dict[AnswerKind, list[float]] = {}
    for each in graded:
        rewards.setdefault(each.kind, []).append(each.reward)
    return [sentence for kind, paid in rewards.items() if (sentence := _fault(kind, paid, is_correct))]


def _fault(kind: AnswerKind, rewards: list[float], is_correct: Callable[[float], bool]) -> str | None:
    if kind == "gold":
        rejected = [reward for reward in rewards if not is_correct(reward)]
        return (
            f"the grader rejects the right answer of {len(rejected)} of {len(rewards)} items (reward "
            f"{min(rejected):g}): nobody can learn what it never pays for"
            if rejected
            else None
        )
    paid = [reward for reward in rewards if reward >= PAID]
    what = "an empty answer" if kind == "empty" else "a wrong answer"
    return (
        f"the grader pays {max(paid):g} for {what} to {len(paid)} of {len(rewards)} items: the policy will learn to "
        f"give no other"
        if paid
        else None
    )
