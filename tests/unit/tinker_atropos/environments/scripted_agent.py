"""Environments with agents and without a run around them: what the policy says is scripted, all else is real."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from atroposlib.envs.server_handling.server_manager import APIServerConfig

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.chat.sampling import Sample, SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.rollout.rollouts import Rollout

TOKENIZER = Tokenizer("bundled")
END_OF_TURN = 2
SERVER = APIServerConfig(
    server_type="sglang",
    base_url="http://127.0.0.1:9/v1",
    api_key="x",
    model_name="bundled",
    tokenizer_name=resolve_tokenizer("bundled"),
    health_check=False,
)
"""It is never asked."""


class ScriptedPolicy:
    """Says `texts` one after the other, and remembers the prompts."""

    def __init__(self, *texts: str) -> None:
        self._texts = itertools.cycle(texts)
        self.prompts: list[list[int]] = []

    async def sampled(self, split: str, prompt: list[int], n: int, settings: SamplingSettings) -> list[Sample]:
        assert (n, settings.temperature) == (1, 0.0 if split == "eval" else 1.0)
        self.prompts.append(prompt)
        tokens = np.array([*TOKENIZER.encode(next(self._texts)).tolist(), END_OF_TURN], np.int64)
        return [Sample(tokens, np.full(len(tokens), -0.5), "stop")]

    def heard(self) -> str:
        """The whole conversation until the last answer."""
        return TOKENIZER.verbatim(np.array(self.prompts[-1], np.int64))


@contextmanager
def agent_environment(environment_class: type[Any], policy: ScriptedPolicy, **config: Any) -> Iterator[Any]:
    """An environment with its own config, but for the values given here."""
    own, _ = environment_class.config_init()
    env = environment_class(own.model_copy(update={"use_wandb": False, **config}), [SERVER])
    env.sampled = policy.sampled
    try:
        yield env
    finally:
        env._toolbox.close()


async def rollout(env: Any, item: Any, split: str = "train") -> Rollout:
    (outcome,) = await env.roll_out(item, 1, split)
    assert isinstance(outcome, Rollout), outcome
    return outcome
