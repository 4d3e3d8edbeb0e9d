"""The base classes of environments: the author says what is asked and what is right, the rest is here."""

import asyncio
import inspect
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from atroposlib.envs.base import BaseEnv

from tinker_atropos.environments.environment_fields import EnvironmentConfig
from tinker_atropos.environments.items.difficulty_pools import DifficultyPools
from tinker_atropos.environments.items.held_out import (
    EVAL_METRIC,
    Evaluation,
    HeldOutSets,
    PlayedItem,
    evaluation_of,
    items_to_play,
    named_sets,
)
from tinker_atropos.environments.items.item_order import ItemOrder, LeftOut
from tinker_atropos.environments.rollout.conversation import Output, SampledSequence, answer_text
from tinker_atropos.environments.rollout.failures import IncompleteGroupError, describe, found_disk_full, innermost
from tinker_atropos.environments.rollout.prompt_tokens import Message, render
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Outcome, Rollout, failure_kind, scored_group
from tinker_atropos.environments.rollout.sampled_work import current_work, greedily, item_under_way, together
from tinker_atropos.environments.rollout.teacher import Teacher
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.errors import ConfigError

__all__ = ["Environment", "EnvironmentConfig", "FailedRollout", "Item", "Message", "Rollout", "SampledEnvironment"]

logger = logging.getLogger(__name__)

SOME_ITEMS = 8
REPLACEMENT_ROUNDS = 3
"""How often the failed rollouts of a group are made again. A failure that comes back as often is not a chance one."""

MOST_HELD_OUT = 1_000
"""So many items in a row that are held out: there is hardly another one."""

Item = TypeVar("Item")


class SampledEnvironment(BaseEnv, ABC, Generic[Item]):  # type: ignore[misc]  # atroposlib ships no types
    """Items to train on and to judge by, rollouts of them, and their groups: what `Environment` (one answer) and
    `MultiTurnEnvironment` (a conversation) share.

    Rollouts carry the logprobs under which they were sampled, and the end-of-turn token once: tokens come from the
    sampler and are never rebuilt from text.
    """

    env_config_cls = EnvironmentConfig
    eval_metric: ClassVar[str] = EVAL_METRIC

    _position: int = 0
    _held_out_in_row: int = 0

    @abstractmethod
    def training_items(self) -> Sequence[Item]:
        """The items to train on."""

    @abstractmethod
    def held_out_items(self) -> Sequence[Item]:
        """The items to evaluate on. They must never be trained on."""

    def held_out_sets(self) -> HeldOutSets[Item]:
        """More of them, by name: `eval/NAME/percent_correct`. A set may be a part of `held_out_items()`: an object that
        is in several sets is sampled once. Which weights are the best, `held_out_items()` decides.
        """
        return {}

    @abstractmethod
    def prompt(self, item: Item) -> list[Message]:
        """The messages that ask for an answer."""

    @abstractmethod
    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        """Sample and score n rollouts. `split` is `train` or `eval`: each has its own limit of concurrent requests.

        What it raises fails the whole group; a `FailedRollout` (see `failed`) costs that rollout only.
        """

    async def score_answer(self, item: Item, answer: str) -> float | None:  # noqa: ARG002 -- see the docstring
        """The reward of a first answer, apart from any rollout: so graders are checked. None: it has no such reward."""
        return None

    def gold_answer(self, item: Item) -> str | None:  # noqa: ARG002 -- most environments have none
        """An answer that must earn the full reward; None: none is known."""
        return None

    def wrong_answers(self, item: Item) -> Sequence[str]:  # noqa: ARG002 -- wrong for any
        """Answers that must not earn it, such as one that says nothing in the right format."""
        return ("this is not the answer",)

    def saved_state(self) -> str | None:
        """What a later attempt needs to go on from here, besides the weights: a short text, kept with checkpoints. Here
        it is what `difficulty_pools` knows of the items.
        """
        return self._pools.to_state() if self._pools else None

    def restore_state(self, state: str) -> None:
        """Go on from what `saved_state` returned when the weights were saved that training continues from."""
        if self._pools:
            self._pools.restore(state)

    async def close(self) -> None:
        """Let go of what `setup` started. The process ends soon after."""

    def item_of_prompt(self, prompt: str) -> Item | None:
        """The item with exactly this prompt, to score answers to it; None: the right answer is unknown."""
        held_out = (item for items in self.all_held_out().values() for item in items)
        items = (*self.training_items(), *held_out)
        return next((item for item in items if self.prompt(item)[-1]["content"] == prompt), None)

    def question(self, item: Item) -> str:
        """What is asked, as a text: two items with the same one are one to the policy, and must not be both trained and
        held out. An environment in which more is hidden in an item than its prompt shows says so here.
        """
        return json.dumps(self.prompt(item), sort_keys=True, default=repr)

    def requests_at_once(self, n: int) -> int:  # noqa: ARG002 -- a conversation makes one request per rollout
        """How many concurrent requests n rollouts make."""
        return 1

    def is_correct(self, score: float) -> bool:
        """Whether an evaluation counts this reward as correct."""
        return score >= 1.0

    def worth(self, score: float) -> float:
        """What an evaluation counts this reward as: its figure is the mean."""
        return float(self.is_correct(score))

    async def setup(self) -> None:
        """What takes long is loaded here, once; the rest does not rely on it."""

    @cached_property
    def _training(self) -> Sequence[Item]:
        """Raises ConfigError if there are none."""
        items = self.training_items()
        if len(items) == 0:
            raise ConfigError(f"{type(self).__name__} has no items: define training_items(), or get_next_item()")
        return items

    @cached_property
    def order(self) -> ItemOrder:
        """The order of the items to train on."""
        return ItemOrder(self.config.item_seed, len(self._training))

    @cached_property
    def _pools(self) -> DifficultyPools[Item] | None:
        return DifficultyPools(self._training, self.config.item_seed) if self.config.difficulty_pools else None

    @cached_property
    def _withheld(self) -> frozenset[str]:
        return frozenset(self.question(item) for items in self.all_held_out().values() for item in items)

    def is_held_out(self, item: Item) -> bool:
        """Whether a held-out item asks the same."""
        if not self._withheld:
            return False
        try:
            return self.question(item) in self._withheld
        except Exception as error:  # noqa: BLE001 -- the author's code: rollouts will show what it raises
            logger.warning("what an item asks is not known: %r", error)
            return False

    async def item_in_order(self, position: int) -> Item | LeftOut:
        """The item at a position of `order`, unless it is set aside, by its own epoch and index only."""
        place = self.order.at(position)
        aside = self._pools is not None and self._pools.sets_aside(place.epoch, place.index)
        return LeftOut("set_aside") if aside else self._training[place.index]

    async def item_at(self, position: int) -> Item | LeftOut:
        """The item that is trained at a position, which counts from 0 across epochs and processes; or why there is
        none. Raises ConfigError if there is hardly one that is not held out.
        """
        return self.unless_held_out(await self.item_in_order(position))

    def unless_held_out(self, item: Item | LeftOut) -> Item | LeftOut:
        """Raises ConfigError after too many in a row."""
        if isinstance(item, LeftOut):
            return item
        if not self.is_held_out(item):
            self._held_out_in_row = 0
            return item
        self._held_out_in_row += 1
        if self._held_out_in_row >= MOST_HELD_OUT:
            raise ConfigError(
                f"{type(self).__name__} has given {MOST_HELD_OUT:,} items in a row that ask what a held-out item asks, "
                f"and these are not trained: make more different items, or hold fewer out (env.eval_items); if the "
                f"prompt does not say which item it is of, define question(item)"
            )
        return LeftOut("held_out")

    @cached_property
    def _scores(self) -> list[float]:
        """Rewards since the last `wandb_log`."""
        return []

    async def get_next_item(self) -> Item:
        """The next one, in order. In a run `item_at` takes its place: the trajectory API deals positions out."""
        while True:
            item = await self.item_at(self._position)
            self._position += 1
            if not isinstance(item, LeftOut):
                return item

    async def collect_trajectories(self, item: Item) -> tuple[dict[str, Any], list[Item]]:
        """One group: `group_size` rollouts of the same item. Raises IncompleteGroupError."""
        rollouts = await self._whole_group(item)
        self.was_rewarded(item, [rollout.score for rollout in rollouts])
        return scored_group(rollouts, item=item), []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        """With what the teacher says. If it does not answer, the group is lost."""
        if self._teacher is None:
            return trajectories
        several = isinstance(trajectories, list)
        groups = [await self._teacher.teach(group) for group in (trajectories if several else [trajectories])]
        return groups if several else groups[0]

    @cached_property
    def _teacher(self) -> Teacher | None:
        return Teacher.of(self.config)

    def was_rewarded(self, item: Item, rewards: Sequence[float]) -> None:
        """A group is whole: one reward for each rollout."""
        self._scores += rewards
        if self._pools:
            self._pools.rewarded(item, rewards)

    async def _whole_group(self, item: Item) -> list[Rollout]:
        """Failed rollouts are made again: a group that is short would have another baseline. If all of them fail at
        once there is no point in paying for more.
        """
        rollouts: list[Rollout] = []
        for _ in range(1 + REPLACEMENT_ROUNDS):
            missing = self.config.group_size - len(rollouts)
            made, failed = self._sorted(await self.roll_out(item, missing, split="train"))
            rollouts += made
            if not failed:
                return rollouts
            if not rollouts:
                break
        last = failed[-1].message
        again = f"{len(failed)} rollouts failed again, the last with {last}"
        raise IncompleteGroupError(again if rollouts else last)

    def _sorted(self, outcomes: Iterable[Outcome]) -> tuple[list[Rollout], list[FailedRollout]]:
        """Rollouts, and failures, which are reported."""
        rollouts: list[Rollout] = []
        failed: list[FailedRollout] = []
        for outcome in outcomes:
            if isinstance(outcome, Rollout):
                rollouts.append(outcome)
            else:
                failed.append(outcome)
                self.report_failed(outcome)
        return rollouts, failed

    def failed(self, error: Exception, tokens: int) -> FailedRollout:
        """From what was raised in a rollout, and how many tokens were sampled for it. A full disk fails no rollout: the
        error is raised, and all of the work is tried again (`WorkingTime.with_room`).
        """
        cause = innermost(error)
        if found_disk_full(cause):
            raise cause
        return FailedRollout(failure_kind(cause), describe(cause, Path(inspect.getfile(type(self)))), tokens)

    def report_failed(self, rollout: FailedRollout) -> None:
        """The runner puts a method in this one's place that counts them."""
        logger.warning("a rollout failed: %s", rollout.message)

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> Evaluation:
        """Sample all held-out sets at temperature 1: this evaluates the policy as trained, not its likeliest answers.
        With `eval_greedy` those are sampled beside them.

        Rollouts that failed say nothing about the policy, and are left out. Raises ValueError if all of them failed.
        """
        played = await self.held_out_rollouts()
        return evaluation_of(played, self.worth, EVAL_METRIC, samples=self.config.eval_samples)

    def all_held_out(self) -> Mapping[str, Sequence[Item]]:
        """All sets by name, `main` first. Raises ConfigError for names that metrics cannot have."""
        return named_sets(self.held_out_items(), self.held_out_sets(), type(self).__name__)

    def items_evaluated(self) -> int:
        """How many items of each set an evaluation samples."""
        return int(self.config.eval_items)

    async def held_out_rollouts(self) -> list[PlayedItem[Item]]:
        """`eval_samples` rollouts of each evaluated item, and with `eval_greedy` its greedy one, without those that
        failed. Requests of a run become greedy on their way to the policy: outside of one there are none.
        """
        greedy = self.config.eval_greedy and current_work() is not None
        at_once = self.server.servers[0].config.num_requests_for_eval // self.requests_at_once(self.config.eval_samples)
        free = asyncio.Semaphore(max(1, at_once))  # beyond it atroposlib polls for a free slot once a second

        async def made(item: Item, n: int) -> list[Rollout]:
            return self._sorted(await WORKING_TIME.with_room(partial(self.roll_out, item, n, split="eval")))[0]

        async def played(index: int, item: Item, sets: tuple[str, ...]) -> PlayedItem[Item]:
            item_under_way.set(index)
            async with free:
                rollouts = await made(item, self.config.eval_samples)
                likeliest: list[Rollout] = []
                if greedy:
                    with greedily():
                        likeliest = await made(item, 1)
            return PlayedItem(item, sets, rollouts, likeliest)

        items = items_to_play(self.all_held_out(), self.items_evaluated())
        found = await together(played(index, item, sets) for index, (item, sets) in enumerate(items))
        self.report_evaluated(found)
        return found

    def report_evaluated(self, played: Sequence[PlayedItem[Item]]) -> None:
        """The runner puts a method in this one's place that keeps them for people to read."""

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = dict(wandb_metrics or {})
        if self._scores:
            right = sum(self.is_correct(score) for score in self._scores)
            metrics["train/percent_correct"] = right / len(self._scores)
            self._scores.clear()
        await super().wandb_log(metrics)

    def room(self, prompt: list[int]) -> int:
        """How many tokens may follow. A sequence of max_token_length or more is dropped before it is sent."""
        return max(0, int(self.config.max_token_length) - 1 - len(prompt))

    def first_prompt(self, item: Item) -> list[int]:
        """The token ids of what the policy is asked first."""
        return render(self.tokenizer, self.prompt(item))

    def check_config(self) -> None:
        """Raises ConfigError if no rollout could be made, as none of some held-out items leaves room for an answer, or
        if a held-out set has a name that it cannot have.
        """
        self.all_held_out()
        _ = self._pools, self._teacher
        prompts = [self.first_prompt(item) for item in self.held_out_items()[:SOME_ITEMS]]
        if prompts and not any(map(self.room, prompts)):
            raise ConfigError(
                f"env.max_token_length is {self.config.max_token_length}, and the prompts of this environment have "
                f"{min(map(len, prompts))} tokens and more: raise it, or shorten the prompts"
            )

    async def generate(self, prompt: list[int], n: int, split: str) -> list[Output]:
        """Sample n continuations in one request: of training as `trainer.sampling` says, of evaluations at temperature
        1. `greedily` makes it 0.
        """
        max_tokens = self.room(prompt)
        if not max_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens and env.max_token_length is {self.config.max_token_length}: "
                f"there is no room for an answer"
            )
        shape = {"temperature": 1.0} if split == "eval" else {}
        _, outputs, logprobs, _ = await self.server.tokens_and_logprobs_completion(
            input_ids=prompt, n=n, max_tokens=max_tokens, split=split, **shape
        )
        return [Output(tokens, row) for tokens, row in zip(outputs, logprobs, strict=True)]


class Environment(SampledEnvironment[Item], ABC):
    """A task with a verifiable answer. An author writes four methods: what is trained, what is held out, how an item
    is asked, and what an answer is worth.
    """

    @abstractmethod
    def score(self, item: Item, completion: str) -> float:
        """The reward of an answer, from 0 to 1."""

    async def score_answer(self, item: Item, answer: str) -> float:
        return self.score(item, answer)

    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        prompt = render(self.tokenizer, self.prompt(item))
        outputs = await self.generate(prompt, n, split)
        return await together(self._scored(item, prompt, output) for output in outputs)

    async def _scored(self, item: Item, prompt: list[int], output: Output) -> Outcome:
        try:
            score = await self.score_answer(item, answer_text(self.tokenizer, output))
        except Exception as error:  # noqa: BLE001 -- the author's code: it costs this rollout, and is counted
            return self.failed(error, len(output.tokens))
        return Rollout([SampledSequence.begun(prompt, output)], score)


def draws_items(environment_class: type) -> bool:
    """Whether it draws its items itself: there is no order of them that could be looked up."""
    return getattr(environment_class, "get_next_item", None) is not SampledEnvironment.get_next_item
