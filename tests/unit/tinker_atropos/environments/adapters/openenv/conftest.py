import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from tests.unit.tinker_atropos.environments.adapters.openenv.guess_server import GuessServer
from transformers import TokenizersBackend

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.adapters.openenv.openenv_environment import OpenEnvEnvironment
from tinker_atropos.environments.rollout.conversation import Output

END_OF_TURN = 2


class ScriptedPolicy(OpenEnvEnvironment):
    """Answers as written, turn by turn; the last answer again and again. Tokens and logprobs are a sampler's."""

    start_seconds = 60.0
    answers: Sequence[str] = ("5",)
    prompts: list[str]

    async def generate(self, prompt: list[int], n: int, split: str) -> list[Output]:  # noqa: ARG002 -- the base class has it
        shown = self.tokenizer.decode(prompt)
        self.prompts.append(shown)
        turn = shown.count("<|im_start|>assistant") - 1
        ids = self.tokenizer.encode(self.answers[min(turn, len(self.answers) - 1)], add_special_tokens=False)
        return [Output([*ids, END_OF_TURN], [-0.5] * (len(ids) + 1))] * n


Opened = Callable[..., contextlib.AbstractAsyncContextManager[ScriptedPolicy]]


@pytest.fixture
async def server() -> AsyncIterator[GuessServer]:
    async with GuessServer().listening() as listening:
        yield listening


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The environment of a server, set up, with these answers of its policy, settings and fields of its config."""

    @contextlib.asynccontextmanager
    async def opened(
        url: str, *answers: str, settings: dict[str, Any] | None = None, **fields: Any
    ) -> AsyncIterator[ScriptedPolicy]:
        monkeypatch.setenv("RL_OPENENV", json.dumps({"url": url, "timeoutSeconds": 20} | (settings or {})))
        env = scripted(*answers, **fields)
        try:
            await env.setup()
            yield env
        finally:
            await env.close()

    return opened


def scripted(*answers: str, **fields: Any) -> ScriptedPolicy:
    folder = str(bundled_model_folder())
    config, _ = ScriptedPolicy.config_init()
    values = {"tokenizer_name": folder, "max_token_length": 100_000, "system_prompt": "Guess a number."} | fields
    sampler = APIServerConfig(
        server_type="sglang", model_name="m", api_key="x", tokenizer_name=folder, health_check=False
    )
    env = ScriptedPolicy(config.model_copy(update=values), [sampler], slurm=False, testing=False)
    env.tokenizer = TokenizersBackend.from_pretrained(folder)
    env.answers, env.prompts = answers or ("5",), []
    return env
