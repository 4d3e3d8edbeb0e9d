"""The base class of environments that talk: with a user, a tool, a game."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic import Field

from tinker_atropos.environments.base import EnvironmentConfig, Item, SampledEnvironment
from tinker_atropos.environments.rollout.conversation import Conversation, Output
from tinker_atropos.environments.rollout.prompt_tokens import Message
from tinker_atropos.environments.rollout.rollouts import Outcome, Rollout
from tinker_atropos.environments.rollout.sampled_work import as_rollout, together


class MultiTurnConfig(EnvironmentConfig):
    """The fields of an environment that talks."""

    max_turns: int = Field(default=8, gt=0, description="Most answers of the policy in one rollout.")


class MultiTurnEnvironment(SampledEnvironment[Item], ABC):
    """A task of several turns. An author writes `training_items`, `held_out_items`, `prompt`, and these two.

    A rollout ends when `respond` says so, after `max_turns` answers, or when max_token_length leaves no room for
    another one. What was said by then is scored.
    """

    env_config_cls = MultiTurnConfig

    @abstractmethod
    async def respond(self, item: Item, messages: Sequence[Message]) -> Message | None:
        """The user's or tool's message after the policy's last one, with its `role`; None ends the rollout."""

    @abstractmethod
    def score(self, item: Item, messages: Sequence[Message]) -> float:
        """The reward of the whole conversation, from 0 to 1."""

    def requests_at_once(self, n: int) -> int:
        return n

    async def score_answer(self, item: Item, answer: str) -> float:
        """The score of a conversation that ends with its first answer."""
        return self.score(item, [*self.prompt(item), {"role": "assistant", "content": answer}])

    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        """All n begin with the same prompt, in one request, and continue independently."""
        conversations = [Conversation(self.tokenizer, self.prompt(item)) for _ in range(n)]
        outputs = await self.generate(conversations[0].prompt, n, split)
        return await together(
            as_rollout(self._conversed(item, conversation, output, split))
            for conversation, output in zip(conversations, outputs, strict=True)
        )

    async def _conversed(self, item: Item, conversation: Conversation, output: Output, split: str) -> Outcome:
        conversation.answered(output)
        try:
            await self._converse(item, conversation, split)
            return Rollout(conversation.sequences, self.score(item, conversation.messages))
        except Exception as error:  # noqa: BLE001 -- the author's code: it costs this rollout, and is counted
            return self.failed(error, conversation.sampled_tokens)

    async def _converse(self, item: Item, conversation: Conversation, split: str) -> None:
        for _ in range(self.config.max_turns - 1):
            message = await self.respond(item, conversation.messages)
            if message is None:
                return
            conversation.told(message)
            if not self.room(conversation.prompt):
                return
            (output,) = await self.generate(conversation.prompt, 1, split)
            conversation.answered(output)
