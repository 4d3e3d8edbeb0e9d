"""Harnesses without a run around them: what the policy says is scripted; endpoint, sandbox and program are real."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.unit.tinker_atropos.environments.scripted_environment import alone, output

from tinker_atropos.environments.adapters.harness.task_harness import environment_class
from tinker_atropos.environments.harness_environment import HarnessEnvironment
from tinker_atropos.environments.rollout.rollouts import Outcome

ITEM = (4, 1, 3, 2)

ASK = """\
import json, os, sys, urllib.request

def ask(question, base_url=os.environ["OPENAI_BASE_URL"], key=os.environ["OPENAI_API_KEY"]):
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": question}]})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", body.encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]

"""
"""The beginning of a program: a function that asks the policy, as any program does that has no library."""


def python(code: str, *arguments: str) -> list[str]:
    return ["python", "-c", ASK + code, *arguments]


class ScriptedServer:
    """The policy's server: it says `texts` in turn."""

    def __init__(self, servers: Sequence[Any], texts: Sequence[str]) -> None:
        self.servers, self.texts = servers, texts
        self.prompts: list[list[int]] = []

    async def tokens_and_logprobs_completion(self, input_ids: list[int], n: int, **_: Any) -> Any:
        await asyncio.sleep(0)
        first = len(self.prompts)
        self.prompts += [input_ids] * n
        said = [output(self.texts[(first + at) % len(self.texts)]) for at in range(n)]
        return input_ids, [each.tokens for each in said], [each.logprobs for each in said], ["stop"] * n


@contextlib.asynccontextmanager
async def serving(
    command: list[str], texts: Sequence[str] = ("1234",), task: str | type[HarnessEnvironment[Any]] = "sort_digits",
    **given: Any,
) -> AsyncIterator[Any]:  # fmt: skip
    """The environment, set up; closed in the end. `env.server.prompts` has what the policy was asked."""
    made = environment_class(task) if isinstance(task, str) else task
    values = made.config_init()[0].model_dump()
    env = alone(made, **{**values, "group_size": 2, "rollout_seconds": 30, "command": command, **given})
    env.server = ScriptedServer(env.server.servers, texts)
    env.server.servers[0].config.model_name = "bundled"
    try:
        await env.setup()
        yield env
    finally:
        await env.close()


async def one_rollout(env: Any, item: Any = ITEM, split: str = "train") -> Outcome:
    outcomes: list[Outcome] = await env.roll_out(item, 1, split)
    return outcomes[0]
