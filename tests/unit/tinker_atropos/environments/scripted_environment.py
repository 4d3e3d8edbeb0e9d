"""Environments of our base classes without a run around them: what is sampled is scripted, all else is real."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.base import Environment, Message
from tinker_atropos.environments.rollout.conversation import Output
from tinker_atropos.environments.rollout.rollouts import FailedRollout

TOKENIZER = AutoTokenizer.from_pretrained(str(bundled_model_folder()))
END_OF_TURN = 2


def output(text: str) -> Output:
    tokens = [*TOKENIZER.encode(text, add_special_tokens=False), END_OF_TURN]
    return Output(tokens, [-0.5] * len(tokens))


class Capitals(Environment[str]):
    """`a` is answered `A`. Answers are taken from `answers` in turn; `score` is the class's own, to be replaced."""

    answers: Sequence[str] = ("A",)

    def training_items(self) -> Sequence[str]:
        return ["a", "b"]

    def held_out_items(self) -> Sequence[str]:
        return ["c", "d"]

    def prompt(self, item: str) -> list[Message]:
        return [{"role": "user", "content": item}]

    def score(self, item: str, completion: str) -> float:
        return float(completion == item.upper())

    def gold_answer(self, item: str) -> str | None:
        return item.upper()

    async def generate(self, prompt: list[int], n: int, split: str) -> list[Output]:  # noqa: ARG002 -- scripted
        await asyncio.sleep(0)
        texts = [self.answers[(self.asked + index) % len(self.answers)] for index in range(n)]
        self.asked += n
        return [output(text) for text in texts]


def alone(environment_class: type[Any], **config: Any) -> Any:
    """An instance without what BaseEnv connects to; failures are kept in `reported`."""
    env = object.__new__(environment_class)
    values: dict[str, Any] = {"group_size": 4, "item_seed": 0, "max_token_length": 64, "difficulty_pools": False}
    values |= {"eval_items": 2, "eval_samples": 2, "eval_greedy": False}
    values |= {"teacher_top_k": 0, "teacher_api": "openai", "teacher_model": ""}
    env.config = SimpleNamespace(**{**values, **config})
    env.tokenizer = TOKENIZER
    env.server = SimpleNamespace(servers=[SimpleNamespace(config=SimpleNamespace(num_requests_for_eval=8))])
    env.asked = 0
    reported: list[FailedRollout] = []
    env.reported = reported
    env.report_failed = reported.append
    return env
