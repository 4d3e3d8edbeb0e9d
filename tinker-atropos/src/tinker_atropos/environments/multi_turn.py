"""The base class of environments that talk: with a user, a tool, a game."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic import Field

from tinker_atropos.environments.base import EnvironmentConfig, Item, Rollout, SampledEnvironment, together
from tinker_atropos.environments.conversation import Conversation, Message, Output


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

    async def roll_out(self, item: Item, n: int, split: str) -> list[Rollout]:
        """All n begin with the same prompt, in one request, and continue independently."""
        conversations = [Conversation(self.tokenizer, self.prompt(item)) for _ in range(n)]
        outputs = await self.generate(conversations[0].prompt, n, split)
        return await together(
            self._converse(item, conversation, output, split)
            for conversation, output in zip(conversations, outputs, strict=True)
        )

    async def _converse(self, item: Item, conversation: Conversation, output: Output, split: str) -> Rollout:
        conversation.answered(output)
        for _ in range(self.config.max_turns - 1):
            message = await self.respond(item, conversation.messages)
            if message is None:
                break
            conversation.told(message)
            if not self.room(conversation.prompt):
                break
            (output,) = await self.generate(conversation.prompt, 1, split)
            conversation.answered(output)
        return Rollout(conversation.sequences, self.score(item, conversation.messages))
