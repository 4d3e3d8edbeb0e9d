"""The base class of environments whose rollouts are programs that ask the policy, as they would ask any server."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.sampling import Sample, SamplingSettings, StopReason
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS
from tinker_atropos.environments.base import EnvironmentConfig, Item, SampledEnvironment, together
from tinker_atropos.environments.rollouts import FailedRollout, Outcome, Rollout
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.environments.sessions.session_server import SessionServer

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
    _server: SessionServer | None = None

    @abstractmethod
    async def play(self, item: Item, session: RolloutSession) -> float | Mapping[str, float]:
        """One rollout, and its reward, or its rewards by name, which are added up.

        What it raises costs this rollout only. Requests that are still waiting for an answer when it returns are ended.
        """

    async def setup(self) -> None:
        model = self.server.servers[0].config.model_name
        renderer = chat_renderer(Tokenizer.of(self.tokenizer), model, self.config.tool_call_parser)
        self._server = SessionServer(renderer, model, int(self.config.max_token_length) - 1)
        await self._server.start()
        self._counts: defaultdict[str, list[float]] = defaultdict(list)
        await super().setup()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    def requests_at_once(self, n: int) -> int:
        return n

    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        return await together(self._rollout(item, split) for _ in range(n))

    async def _rollout(self, item: Item, split: str) -> Outcome:
        assert self._server is not None, "setup comes first"
        session = self._server.begin(partial(self._sampled, split))
        try:
            async with asyncio.timeout(self.config.rollout_seconds):
                rewards = await self.play(item, session)
            return self._scored(session, rewards)
        except Exception as error:  # noqa: BLE001 -- the author's code: it costs this rollout, and is counted
            return self.failed(error, session.sampled_tokens)
        finally:
            self._server.end(session)

    def _scored(self, session: RolloutSession, rewards: float | Mapping[str, float]) -> Outcome:
        """Raises ValueError for a reward that is no finite number."""
        sequences = session.sequences()
        if not sequences:
            return FailedRollout("raised", NO_ROOM if session.overflowed else NOTHING_ASKED)
        named = {name: _finite(value) for name, value in rewards.items()} if isinstance(rewards, Mapping) else None
        score = _finite(rewards) if named is None else sum(named.values())
        self._note({f"rewards/{name}": value for name, value in (named or {}).items()})
        self._note({"rollouts/turns": session.turns, "rollouts/sequences": len(sequences)})
        self._note({"rollouts/turns_unmatched": session.unmatched})
        return Rollout(sequences, score)

    def _note(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._counts[name].append(value)

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """With the means over the rollouts since the last call: the rewards by name, and how sessions went."""
        means = {name: sum(each) / len(each) for name, each in self._counts.items()}
        self._counts.clear()
        await super().wandb_log({**(wandb_metrics or {}), **means})

    async def _sampled(self, split: str, prompt: list[int], n: int, settings: SamplingSettings) -> list[Sample]:
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


def _wire(settings: SamplingSettings) -> dict[str, Any]:
    """As sglang's fields; those that say nothing are left out, for servers that know few of them."""
    wanted: dict[str, Any] = {"max_tokens": settings.max_tokens, "temperature": settings.temperature}
    if settings.top_p < 1:
        wanted["top_p"] = settings.top_p
    if settings.top_k > 0:
        wanted["top_k"] = settings.top_k
    if settings.seed is not None:
        wanted["seed"] = settings.seed
    if settings.stop:
        wanted["stop"] = list(settings.stop)
    elif settings.stop is not None:
        wanted["ignore_eos"] = True
    return wanted


def _stop_reason(end: Any) -> StopReason:
    """Servers of atroposlib pass on what theirs say: sglang an object, others a word."""
    kind = end.get("type") if isinstance(end, dict) else end
    return "length" if kind == "length" else "stop"
