"""Ways to score what an agent did: several signals with weights, and a model as a judge."""

import asyncio
import json
import logging
import math
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

logger = logging.getLogger(__name__)

REMEMBERED: Final = 10_000
"""Verdicts that are kept, so that nothing is judged twice."""


def weighted(signals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Rewards by name from (weight, value) of each signal, values clamped to [0, 1]. Together they are at most 1: what
    is more, such as a bonus on a full reward, is taken from the last ones.
    """
    rewards: dict[str, float] = {}
    for name, (weight, value) in signals.items():
        rewards[name] = min(weight * clamped(value), 1.0 - sum(rewards.values()))
    return rewards


def clamped(value: float) -> float:
    """To [0, 1]. Raises ValueError for a value that is not a number."""
    if math.isnan(value):
        raise ValueError("a reward is nan")
    return min(1.0, max(0.0, float(value)))


class Judge:
    """Asks a model for a score from 0 to 1. `ask` takes messages and returns the answer's text.

    If the model fails or gives no score, a heuristic decides; `fallbacks` counts that. A rollout that was judged is
    not judged again, whoever asks.
    """

    def __init__(self, ask: Callable[[list[dict[str, object]]], Awaitable[str]]) -> None:
        self._ask = ask
        self._verdicts: OrderedDict[str, asyncio.Future[float]] = OrderedDict()
        self.fallbacks = 0

    async def score(self, task_id: str, prompt: str, heuristic: Callable[[], float]) -> float:
        """The score of the rollout `task_id` (`ctx.task_id`). The prompt asks for JSON such as {"score": 0.5}."""
        if task_id not in self._verdicts:
            self._verdicts[task_id] = asyncio.ensure_future(self._judged(prompt, heuristic))
            while len(self._verdicts) > REMEMBERED:
                self._verdicts.popitem(last=False)
        return await asyncio.shield(self._verdicts[task_id])

    async def _judged(self, prompt: str, heuristic: Callable[[], float]) -> float:
        try:
            answer = await self._ask([{"role": "user", "content": prompt}])
            return clamped(verdict(answer))
        except Exception as error:  # noqa: BLE001 -- a judge that is down costs nobody's rollout
            self.fallbacks += 1
            logger.warning("the judge failed, and a heuristic decides: %s: %s", type(error).__name__, error)
        return clamped(heuristic())


def verdict(answer: str) -> float:
    """The `score` of the last JSON object in an answer. Raises ValueError if there is none."""
    for text in reversed(re.findall(r"\{[^{}]*\}", answer)):
        try:
            score = json.loads(text).get("score")
        except ValueError:
            continue
        if isinstance(score, int | float) and not isinstance(score, bool):
            return float(score)
    raise ValueError(f"the answer has no score: {answer[:80]!r}")
