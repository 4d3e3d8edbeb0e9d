"""reasoning-gym's countdown, where every sixteenth answer is one that its grader never comes to an end with."""

from itertools import count
from typing import Any

from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import environment_class

ENDLESS = "<answer>9**9**9**9</answer>"


class HangingGrader(environment_class("countdown")):  # type: ignore[misc]
    name = "hanging_grader"
    answers = count(1)

    async def score_answer(self, item: Any, answer: str) -> float:
        return float(await super().score_answer(item, answer if next(self.answers) % 16 else ENDLESS))
