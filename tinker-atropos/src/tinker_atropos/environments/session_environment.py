"""The base class of environments whose rollouts have sessions: whatever asks the policy, such as a program that asks it
as it would ask any server, every token that it samples for a rollout is trained with that rollout's reward.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from tinker_atropos.chat.chat_rendering import ChatRenderer, chat_renderer
from tinker_atropos.chat.sampling import Sample, SamplingSettings, StopReason
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS
from tinker_atropos.environments.base import EnvironmentConfig, Item, SampledEnvironment
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Outcome, Rollout
from tinker_atropos.environments.rollout.sampled_work import as_rollout, together
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.sessions.rollout_session import RolloutSession, SessionServer

__all__ = ["SessionConfig", "SessionEnvironment"]

ToolFormatName = Literal[
    "hermes", "qwen", "qwen3_coder", "mistral", "llama3_json", "deepseek_v3", "deepseek_v3_1", "kimi_k2", "longcat",
    "glm45", "glm47",
]  # fmt: skip
assert set(ToolFormatName.__args__) == set(TOOL_FORMATS)  # type: ignore[attr-defined]  # the catalog reads it here

NOTHING_ASKED = "the rollout ended before it had asked the policy anything"
NO_ROOM = (
    "the first prompt of the rollout leaves no room for an answer: raise env.max_token_length, or shorten the prompt"
)


class SessionConfig(EnvironmentConfig):
    """The fields of an environment whose rollouts have sessions."""

    rollout_seconds: float = Field(default=600.0, gt=0, description="Longest time for one rollout, with its scoring.")
    tool_call_parser: ToolFormatName | None = Field(
        default=None, description="How the model writes tool calls. Without it: as its family does."
    )


class SessionEnvironment(SampledEnvironment[Item], ABC):
    """A task for programs. An author writes `training_items`, `held_out_items`, `prompt`, and `play`.

    All that a rollout asks with its session's `base_url` and `api_key` is trained: through OpenAI's completions and
    chat, and Anthropic's messages, with tools.
    """

    env_config_cls = SessionConfig
    serves_sessions: ClassVar[bool] = True
    """Whether programs ask, over HTTP. Otherwise nothing but `play` itself can ask, and no port is opened."""

    _server: SessionServer | None = None

    @abstractmethod
    async def play(self, item: Item, session: RolloutSession) -> float | Mapping[str, float]:
        """One rollout, and its reward, or its rewards by name, which are added up.

        What it raises costs this rollout only. Requests that are still waiting for an answer when it returns are ended.
        """

    async def setup(self) -> None:
        if self.serves_sessions:
            self._server = SessionServer(self.renderer, self.model_name, self.context_length)
            await self._server.start()
        await super().setup()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await super().close()

    async def begin_session(self, split: str) -> RolloutSession:
        sample = partial(self.sampled, split)
        if not self.serves_sessions:
            return RolloutSession("", self.renderer, sample, self.context_length, split)
        assert self._server is not None, "setup comes first"
        return self._server.begin(sample, split)

    def end_session(self, session: RolloutSession) -> None:
        if self._server is None:
            session.end()
        else:
            self._server.end(session)

    @property
    def model_name(self) -> str:
        return str(self.server.servers[0].config.model_name)

    @property
    def context_length(self) -> int:
        """Prompt and answer together, in tokens: a longer sequence would be dropped before it is sent."""
        return int(self.config.max_token_length) - 1

    @cached_property
    def renderer(self) -> ChatRenderer:
        """Raises ConfigError for an unknown tool format."""
        return chat_renderer(Tokenizer.of(self.tokenizer), self.model_name, self.config.tool_call_parser)

    @property
    def keeps_messages(self) -> bool:
        """Whether somebody reads the conversations: in a run nobody does, and they would be sent with each group."""
        return bool(self.config.include_messages) or getattr(self, "jsonl_writer", None) is not None

    @cached_property
    def _figures(self) -> defaultdict[str, list[float]]:
        return defaultdict(list)

    def requests_at_once(self, n: int) -> int:
        return n

    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        return await together(as_rollout(self._rollout(item, split)) for _ in range(n))

    def in_play(self, split: str) -> AbstractAsyncContextManager[object]:  # noqa: ARG002 -- here nobody has to wait
        """What a rollout enters before its session and its time begin, and where it may have to wait for its turn."""
        return nullcontext()

    async def _rollout(self, item: Item, split: str) -> Outcome:
        try:
            async with self.in_play(split):
                return await self._played(item, split)
        except Exception as error:  # noqa: BLE001 -- it could not begin, which costs this rollout, and is counted
            return self.failed(error, 0)

    async def _played(self, item: Item, split: str) -> Outcome:
        session = await self.begin_session(split)
        try:
            async with WORKING_TIME.limited(self.config.rollout_seconds):
                rewards = await self.play(item, session)
            return self._outcome(session, rewards, split)
        except Exception as error:  # noqa: BLE001 -- the author's code: it costs this rollout, and is counted
            return self.failed(error, session.sampled_tokens)
        finally:
            self.end_session(session)

    def _outcome(self, session: RolloutSession, rewards: float | Mapping[str, float], split: str) -> Outcome:
        """Raises ValueError for a reward that is not a finite number."""
        sequences = session.sequences()
        if not sequences:
            return FailedRollout("raised", NO_ROOM if session.overflowed else NOTHING_ASKED)
        named = {name: _finite(value) for name, value in rewards.items()} if isinstance(rewards, Mapping) else None
        score = _finite(rewards) if named is None else sum(named.values())
        if split == "train":
            self.note({f"rewards/{name}": value for name, value in (named or {}).items()})
            self.note({"rollouts/turns": session.turns, "rollouts/sequences": len(sequences)})
            self.note({"rollouts/turns_unmatched": session.unmatched})
        messages = session.messages if self.keeps_messages or split == "eval" else ()
        return Rollout(sequences, score, messages=messages, components=named or {})

    def note(self, figures: Mapping[str, float]) -> None:
        """Figures of a training rollout: their means are logged."""
        for name, value in figures.items():
            self._figures[name].append(value)

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """With the means over the rollouts since the last call: the rewards by name, and how sessions went."""
        means = {name: sum(each) / len(each) for name, each in self._figures.items()}
        self._figures.clear()
        await super().wandb_log({**(wandb_metrics or {}), **means})

    async def sampled(self, split: str, prompt: list[int], n: int, settings: SamplingSettings) -> list[Sample]:
        """Answers to a prompt in token ids, from the policy."""
        _, outputs, logprobs, ends = await self.server.tokens_and_logprobs_completion(
            input_ids=prompt, n=n, split=split, **_wire(settings)
        )
        return [
            Sample(np.array(tokens, np.int64), np.array(row, np.float64), _stop_reason(end))
            for tokens, row, end in zip(outputs, logprobs, ends, strict=True)
        ]


def _finite(reward: Any) -> float:
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(f"a reward is {reward}: it must be a finite number")
    return value


def _wire(settings: SamplingSettings) -> dict[str, object]:
    """As sglang's fields; those that say nothing are left out, for servers that know few of them."""
    wanted = {
        "max_tokens": settings.max_tokens,
        "temperature": None if "temperature" in settings.left_out else settings.temperature,
        "top_p": settings.top_p if settings.top_p < 1 else None,
        "top_k": settings.top_k if settings.top_k > 0 else None,
        "seed": settings.seed,
        "stop": list(settings.stop) if settings.stop else None,
        "ignore_eos": True if settings.stop is not None and not settings.stop else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _stop_reason(end: object) -> StopReason:
    """Servers of atroposlib pass on what theirs say: sglang an object, others a word."""
    kind = end.get("type") if isinstance(end, dict) else end
    return "length" if kind == "length" else "stop"
