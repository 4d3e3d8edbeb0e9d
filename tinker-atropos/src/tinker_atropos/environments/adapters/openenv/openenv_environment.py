"""Environments of OpenEnv servers: any that speaks OpenEnv's WebSocket is trained on, without the `openenv` package.

A server's texts stand in a prompt limited in length, and without a model's control tokens.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from pydantic import Field, ValidationError
from pydantic_core import to_json

from tinker_atropos.chat.tokenizer import ControlText
from tinker_atropos.environments.adapters.openenv.openenv_actions import (
    JsonActions,
    ServerTool,
    ToolCalls,
    takes_tool_calls,
)
from tinker_atropos.environments.adapters.openenv.openenv_client import (
    LIST_TOOLS,
    Observed,
    OpenEnvClient,
    OpenEnvServerError,
    OpenEnvSession,
    RefusedActionError,
    reset_frame,
    step_frame,
)
from tinker_atropos.environments.adapters.openenv.openenv_settings import load_openenv_settings
from tinker_atropos.environments.base import Message, SampledEnvironment
from tinker_atropos.environments.multi_turn import MultiTurnConfig
from tinker_atropos.environments.rollout.conversation import Conversation
from tinker_atropos.environments.rollout.rollouts import Outcome, Rollout
from tinker_atropos.environments.rollout.sampled_work import as_rollout, together
from tinker_atropos.errors import EnvironmentLostError, in_one_line

NOTHING: Final = "(nothing was observed)"


def cut(text: str, limit: int) -> str:
    """At most `limit` characters and a note on what was left out."""
    left_out = len(text) - limit
    return f"{text[:limit]}\n[{left_out} more characters]" if left_out > 0 else text


def observation_text(observation: Mapping[str, object]) -> str:
    """The only text of an observation, or its JSON. What is empty of OpenEnv's own fields is left out."""
    shown = {name: value for name, value in observation.items() if name != "metadata" or value}
    match list(shown.values()):
        case []:
            return NOTHING
        case [str(text)] if text.strip():
            return text
        case _:
            return to_json(shown).decode()


def tool_text(observation: Mapping[str, object]) -> str:
    """What a tool returned, as an MCP client shows it (`CallToolObservation` of `mcp_types.py`)."""
    if "tool_name" not in observation:
        return observation_text(observation)
    error, result = observation.get("error"), observation.get("result")
    if error:
        return f"The tool failed: {error.get('message') if isinstance(error, Mapping) else error}"
    content = result.get("content") if isinstance(result, Mapping) else None
    texts = _texts(content) if isinstance(content, Sequence) else []
    return "\n".join(texts) or to_json(result).decode()


def _texts(content: Sequence[object]) -> list[str]:
    return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]


NEARLY = 1e-9
"""Ten rewards of 0.1 add up to a little less than 1."""


class OpenEnvConfig(MultiTurnConfig):
    """The fields of an OpenEnv environment. Where its server is says RL_OPENENV (`openenv_settings.py`)."""

    system_prompt: str | None = Field(
        default=None, description="What the policy is told first. Without it: the actions, from the server's schemas."
    )
    success_reward: float = Field(
        default=1.0, allow_inf_nan=False, description="The sum of rewards from which on an episode counts as correct."
    )
    max_observation_chars: int = Field(
        default=4000, gt=0, description="Most characters of an observation in the prompt; what follows is left out."
    )
    max_system_prompt_chars: int = Field(
        default=8000, gt=0, description="Most characters of a system prompt that is made from the server's schemas."
    )


class OpenEnvEnvironment(SampledEnvironment[int]):
    """Any environment of an OpenEnv server: an item is a seed, and an answer an action."""

    name = "openenv"
    env_config_cls = OpenEnvConfig
    start_seconds: ClassVar[float] = 300.0
    """How long the server may take to start: some load a simulator or a browser."""

    _client: OpenEnvClient | None = None

    @classmethod
    def config_init(cls) -> tuple[OpenEnvConfig, list[object]]:
        return OpenEnvConfig(group_size=8, batch_size=64, total_steps=100, max_token_length=4096, eval_items=100), []

    async def setup(self) -> None:
        """Raises ConfigError, or EnvironmentLostError if the server is not there or not one of OpenEnv's."""
        self._client = OpenEnvClient(load_openenv_settings())
        await self._client.wait_until_healthy(self.start_seconds)
        schema = await self._client.schema()
        self._calls_tools = takes_tool_calls(schema.action)
        self._actions = ToolCalls(await self._tools()) if self._calls_tools else JsonActions(schema.action)
        self._control = ControlText(self.tokenizer)
        self._instructions = self._system_messages()
        await super().setup()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    @property
    def client(self) -> OpenEnvClient:
        assert self._client is not None, "setup comes first"
        return self._client

    async def _tools(self) -> list[ServerTool]:
        try:
            async with self.client.session(step_frame(LIST_TOOLS)) as (_, listed):
                return [ServerTool.model_validate(tool) for tool in listed.observation["tools"]]
        except ValidationError as error:
            said = in_one_line(error)
        except Exception as error:  # noqa: BLE001 -- whatever it is, there is nothing to act with
            said = f"{type(error).__name__}: {error}"
        raise EnvironmentLostError(f"the OpenEnv server {self.client.settings.url} does not list its tools: {said}")

    def training_items(self) -> Sequence[int]:
        settings = self.client.settings
        return range(settings.held_out_seeds, settings.held_out_seeds + settings.training_seeds)

    def held_out_items(self) -> Sequence[int]:
        return range(self.client.settings.held_out_seeds)

    def prompt(self, item: int) -> list[Message]:
        """Only the server knows its first observation; a rollout has it in the place of the last message."""
        return [*self._instructions, {"role": "user", "content": f"(the first observation of seed {item})"}]

    def _system_messages(self) -> list[Message]:
        """The author's text, which is taken as it is, or one from the server's schemas, which are not trusted."""
        shown = self.config.system_prompt
        if shown is None:
            shown = self._untrusted(self._actions.instructions(), self.config.max_system_prompt_chars)
        return [{"role": "system", "content": shown}] if shown else []

    def is_held_out(self, item: int) -> bool:
        return item in self.held_out_items()

    def item_of_prompt(self, prompt: str) -> int | None:  # noqa: ARG002 -- nothing tells which seed leads to it
        return None

    def is_correct(self, score: float) -> bool:
        return bool(score >= self.config.success_reward - NEARLY)

    def requests_at_once(self, n: int) -> int:
        return n

    async def roll_out(self, item: int, n: int, split: str) -> list[Outcome]:
        """Each in a session of its own; all begin with the same seed."""
        return await together(as_rollout(self._episode(item, split)) for _ in range(n))

    async def score_answer(self, item: int, answer: str) -> float:
        """What the environment pays for a first action."""
        async with self.client.session(reset_frame(item)) as (session, _):
            return (await self._acted(session, answer)).earned

    async def _episode(self, seed: int, split: str) -> Outcome:
        tokens = 0
        try:
            async with self.client.session(reset_frame(seed)) as (session, first):
                conversation = self._begun(seed, first)
                try:
                    score = await self._play(session, conversation, split)
                finally:
                    tokens = conversation.sampled_tokens
        except Exception as error:  # noqa: BLE001 -- the server's or its environment's fault costs this rollout only
            return self.failed(error, tokens)
        return Rollout(conversation.sequences, score)

    def _begun(self, seed: int, first: Observed) -> Conversation:
        if first.done:
            raise OpenEnvServerError(f"the episode of seed {seed} is over before the first action")
        return Conversation(self.tokenizer, [*self._instructions, self._told(first)])

    async def _play(self, session: OpenEnvSession, conversation: Conversation, split: str) -> float:
        """The sum of the rewards."""
        score = 0.0
        for turn in range(1, self.config.max_turns + 1):
            (output,) = await self.generate(conversation.prompt, 1, split)
            conversation.answered(output)
            observed = await self._acted(session, conversation.messages[-1]["content"])
            score += observed.earned
            if observed.done or turn == self.config.max_turns:
                break
            conversation.told(self._told(observed))
            if not self.room(conversation.prompt):
                break
        return score

    async def _acted(self, session: OpenEnvSession, answer: str) -> Observed:
        """What an answer leads to: if it is not an action, only a sentence about that."""
        try:
            return await session.step(self._actions.parse(answer))
        except RefusedActionError as refusal:
            return Observed(observation={"refusal": f"{refusal} {self._actions.allowed}"})

    def _told(self, observed: Observed) -> Message:
        shown = tool_text(observed.observation) if self._calls_tools else observation_text(observed.observation)
        return {"role": "user", "content": self._untrusted(shown, self.config.max_observation_chars)}

    def _untrusted(self, text: str, limit: int) -> str:
        return self._control.defused(cut(text, limit))
