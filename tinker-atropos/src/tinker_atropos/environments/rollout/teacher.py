"""A teacher: a second model, which says what it would have sampled in place of each token of a group's answers.

It is asked through atroposlib's `get_logprobs`, which gives for each token of a sequence the token itself and the K
likeliest in its place, with their logprobs. It has to have the policy's vocabulary: token ids are all that is said.
"""

import asyncio
import heapq
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerManager

from rl_contract.env_vars import TEACHER_API_KEY, TEACHER_URL
from rl_contract.scored_group import PROMPT_MASK
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.errors import ConfigError

Candidates = tuple[list[int], list[float]]


@dataclass(frozen=True, slots=True)
class Teacher:
    """One of atroposlib's servers. `top_k` 1: it scores the sampled tokens; more: it names its likeliest ones."""

    server: Any
    top_k: int

    @classmethod
    def of(cls, config: Any) -> "Teacher | None":
        """By an `EnvironmentConfig`; None: it asks for none. Its address comes from where its key does, never from a
        config. Raises ConfigError.
        """
        if not config.teacher_top_k:
            return None
        url = os.environ.get(TEACHER_URL, "")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"env.teacher_top_k is {config.teacher_top_k}, and {TEACHER_URL} is {url!r}: set that variable to "
                f"where the teacher is served, like http://127.0.0.1:8100, or leave teacher_top_k out"
            )
        server = APIServerConfig(
            server_type=config.teacher_api,
            base_url=f"{url.rstrip('/').removesuffix('/v1')}/v1",
            model_name=config.teacher_model,
            tokenizer_name=config.tokenizer_name,
            api_key=os.environ.get(TEACHER_API_KEY) or "x",  # an empty one crashes the openai client
            health_check=False,  # a teacher that is away fails requests, in place of being waited for in silence
        )
        return cls(ServerManager([server]).servers[0], config.teacher_top_k)

    async def teach(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The group with the teacher's fields. Prompts have none: nothing is trained there."""
        rows = zip(group["tokens"], group["masks"], strict=True)
        found_S = await asyncio.gather(*(self._row(tokens, masks) for tokens, masks in rows))
        return {
            **group,
            "distill_token_ids": [[ids for ids, _ in found_T] for found_T in found_S],
            "distill_logprobs": [[logprobs for _, logprobs in found_T] for found_T in found_S],
        }

    async def _row(self, tokens: list[int], masks: list[int]) -> list[Candidates]:
        asked = 0 if self.top_k == 1 else self.top_k
        answer = await self.server.get_logprobs(input_ids=tokens, top_k=asked, max_tokens=1, split="train")
        ids_T, logprobs_T = answer["prompt_topk_token_ids"], answer["prompt_topk_logprobs"]
        if not len(ids_T) == len(logprobs_T) == len(tokens):
            raise TransportError(
                f"the teacher said something of {len(ids_T)} tokens, and was asked about {len(tokens)}: it needs the "
                f"policy's tokenizer"
            )
        found_T = zip(tokens, masks, ids_T, logprobs_T, strict=True)
        return [
            ([], []) if mask == PROMPT_MASK else self._chosen(token, dict(zip(ids, logprobs, strict=True)))
            for token, mask, ids, logprobs in found_T
        ]

    def _chosen(self, token: int, logprobs: Mapping[int, float]) -> Candidates:
        if self.top_k > 1:
            likeliest = heapq.nlargest(self.top_k, logprobs.items(), key=lambda named: named[1])
            return [each for each, _ in likeliest], [logprob for _, logprob in likeliest]
        return ([token], [logprobs[token]]) if token in logprobs else ([], [])
