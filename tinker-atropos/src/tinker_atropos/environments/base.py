"""The base class of environments: the author says what is asked and what is right, the rest is here."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from atroposlib.envs.base import BaseEnv, BaseEnvConfig
from pydantic import Field

from tinker_atropos.environments.evaluation import Evaluation
from tinker_atropos.wire import PROMPT_LOGPROB, PROMPT_MASK

Item = TypeVar("Item")
Message = dict[str, Any]


class EnvironmentConfig(BaseEnvConfig):  # type: ignore[misc]  # atroposlib ships no types
    """The fields of an environment. Authors subclass it to add their own."""

    eval_items: int = Field(default=250, gt=0, description="How many held-out items an evaluation samples.")
    eval_samples: int = Field(default=2, gt=0, description="How many completions per held-out item.")
    item_seed: int = Field(default=0, description="Seed of the order in which items are trained.")


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer: the whole sequence of prompt and answer, as the trainer needs it. Axis `T`: its tokens."""

    text: str
    tokens: list[int]
    masks: list[int]
    logprobs: list[float]


class Environment(BaseEnv, ABC, Generic[Item]):  # type: ignore[misc]  # atroposlib ships no types
    """A task with a verifiable answer. An author writes four methods: what is trained, what is held out, how an item
    is asked, and what an answer is worth.

    Rollouts carry the logprobs under which they were sampled, and the end-of-turn token once: tokens come from the
    sampler and are never rebuilt from text.
    """

    env_config_cls = EnvironmentConfig
    eval_metric: ClassVar[str] = "eval/percent_correct"

    @abstractmethod
    def training_items(self) -> Sequence[Item]:
        """The items to train on."""

    @abstractmethod
    def held_out_items(self) -> Sequence[Item]:
        """The items to judge by. They must never be trained on."""

    @abstractmethod
    def prompt(self, item: Item) -> list[Message]:
        """The messages that ask for an answer."""

    @abstractmethod
    def score(self, item: Item, completion: str) -> float:
        """The reward of an answer, from 0 to 1."""

    def is_correct(self, score: float) -> bool:
        """Whether an evaluation counts this reward as right."""
        return score >= 1.0

    async def setup(self) -> None:
        self._items = _endless(self.training_items(), random.Random(self.config.item_seed))  # noqa: S311 -- an order
        self._scores: list[float] = []

    async def get_next_item(self) -> Item:
        return next(self._items)

    async def collect_trajectories(self, item: Item) -> tuple[dict[str, Any], list[Item]]:
        """Sample and score one group: `group_size` answers to the same item."""
        completions = await self.sample(item, self.config.group_size, split="train")
        scores = [self.score(item, completion.text) for completion in completions]
        self._scores += scores
        group = {
            "tokens": [completion.tokens for completion in completions],
            "masks": [completion.masks for completion in completions],
            "inference_logprobs": [completion.logprobs for completion in completions],
            "scores": scores,
        }
        return group, []

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> Evaluation:
        """Sample the held-out set at temperature 1: the policy as it is trained, not its most likely answers."""
        items = self.held_out_items()[: self.config.eval_items]
        free = asyncio.Semaphore(self.server.servers[0].config.num_requests_for_eval)

        async def judge(item: Item) -> list[bool]:
            async with free:
                completions = await self.sample(item, self.config.eval_samples, split="eval")
            return [self.is_correct(self.score(item, completion.text)) for completion in completions]

        verdicts = [verdict for verdicts in await asyncio.gather(*map(judge, items)) for verdict in verdicts]
        return Evaluation(correct=sum(verdicts), n=len(verdicts))

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = dict(wandb_metrics or {})
        if self._scores:
            right = sum(self.is_correct(score) for score in self._scores)
            metrics["train/percent_correct"] = right / len(self._scores)
            self._scores = []
        await super().wandb_log(metrics)

    async def sample(self, item: Item, n: int, split: str) -> list[Completion]:
        """Sample n answers at temperature 1 in one request. `split` is `train` or `eval`: each has its own limit."""
        rendered = self.tokenizer.apply_chat_template(
            self.prompt(item), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        # A sequence as long as max_token_length is dropped before it is sent: stay below it.
        prompt_ids, outputs, logprobs, _ = await self.server.tokens_and_logprobs_completion(
            input_ids=rendered,
            n=n,
            max_tokens=self.config.max_token_length - len(rendered) - 1,
            temperature=1.0,
            split=split,
        )
        return [
            Completion(
                text=self.tokenizer.decode(output_ids, skip_special_tokens=True),
                tokens=[*prompt_ids, *output_ids],
                masks=[PROMPT_MASK] * len(prompt_ids) + output_ids,
                logprobs=[PROMPT_LOGPROB] * len(prompt_ids) + output_logprobs,
            )
            for output_ids, output_logprobs in zip(outputs, logprobs, strict=True)
        ]


def _endless(items: Sequence[Item], generator: random.Random) -> Iterator[Item]:
    """All items in a random order, then all of them in another one, for ever."""
    while True:
        yield from generator.sample(items, len(items))
