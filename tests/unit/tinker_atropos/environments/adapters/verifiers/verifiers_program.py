"""Scenarios of the adapter with the real verifiers, in a Python that has it: `python verifiers_program.py NAME...`.

The policy is the scripted one of `tinker-atropos check`, behind the trainer's own inference server. Prints one JSON
object: what each scenario saw.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.scripted_policy import ScriptedPolicy
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.rollout.failures import IncompleteGroupError
from tinker_atropos.environments.rollout.sampled_work import greedily, sampling
from tinker_atropos.environments.runner import atropos_patches
from tinker_atropos.environments.runner.loading import process_setup
from tinker_atropos.environments.runner.loading.environment_config import wired_to_run
from tinker_atropos.environments.runner.loading.environment_files import locate_environment
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings

SHARED = {"total_steps": 2, "group_size": 4, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 256}


class RecordingApp:
    """What was asked for by token ids, and what was answered."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.exchanges: list[tuple[dict[str, Any], int, dict[str, Any]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked, answered, status = b"", b"", 0

        async def received() -> Any:
            nonlocal asked
            message = await receive()
            asked += message.get("body", b"")
            return message

        async def sent(message: Any) -> None:
            nonlocal answered, status
            status = message.get("status", status)
            answered += message.get("body", b"")
            await send(message)

        await self._app(scope, received, sent)
        if scope["path"] == "/inference/v1/generate":
            self.exchanges.append((orjson.loads(asked), status, orjson.loads(answered)))

    @property
    def sampled(self) -> list[dict[str, Any]]:
        """Prompt, output and logprobs of each answer."""
        return [
            {
                "prompt": asked["token_ids"],
                "output": answered["choices"][0]["token_ids"],
                "logprobs": [each["logprob"] for each in answered["choices"][0]["logprobs"]["content"]],
            }
            for asked, status, answered in self.exchanges
            if status == 200
        ]


@contextlib.asynccontextmanager
async def opened(name: str, **fields: Any) -> AsyncIterator[tuple[Any, RecordingApp]]:
    run = parse_config({"env": {**SHARED, **fields}, "openai": [{"model_name": "bundled"}]})
    tokenizer = Tokenizer("bundled")
    policy = ScriptedPolicy(tokenizer, seed=0)
    app = RecordingApp(policy.app(tokenizer, 4096, "bundled"))
    with policy.served(app):
        loaded = load_environment(locate_environment(f"verifiers/{name}"))
        env = loaded.build(run, wired_to_run(run, Settings(inference_url=policy.url)))
        await env.setup()
        policy.sampler.expect(env.gold_answer(env.training_items()[0]), ("wrong",))
        try:
            yield env, app
        finally:
            await env.close()


async def groups(name: str, **fields: Any) -> dict[str, Any]:
    async with opened(name, **fields) as (env, app):
        made, _ = await env.collect_trajectories(env.training_items()[0])
        metrics = {each: sum(values) / len(values) for each, values in env._metrics.items()}
        return {
            "groups": made,
            "sampled": app.sampled,
            "metrics": metrics,
            "statuses": [each[1] for each in app.exchanges],
        }


async def exact() -> dict[str, Any]:
    return {name: await groups(name) for name in ("sort-digits-vf", "guess_number_vf", "ask_and_answer_vf")}


async def truncated() -> dict[str, Any]:
    return {
        "length": await groups("guess_number_vf", max_token_length=64, max_turns=50),
        "turns": await groups("guess_number_vf", max_turns=2),
    }


async def game() -> dict[str, Any]:
    """Its word lists are in NLTK_DATA. Its prompts are longer than the bundled model's context."""
    fields = {"taskset": {"game": "Hangman-v0"}, "max_turns": 3, "train_items": 10, "max_token_length": 2048}
    return await groups("textarena", **fields)


async def unanswered() -> dict[str, Any]:
    failures: list[Any] = []
    async with opened("sort-digits-vf", max_token_length=12) as (env, _):
        env.report_failed = failures.append
        with contextlib.suppress(IncompleteGroupError):
            await env.collect_trajectories(env.training_items()[0])
    return {"messages": [each.message for each in failures]}


async def failing() -> dict[str, Any]:
    failures: list[Any] = []
    async with opened("raising_reward_vf") as (env, _):
        env.report_failed = failures.append
        try:
            await env.collect_trajectories(env.training_items()[0])
        except IncompleteGroupError as error:
            said = str(error)
    return {"kinds": [each.kind for each in failures], "tokens": [each.tokens for each in failures], "error": said}


async def slow() -> dict[str, Any]:
    failures: list[Any] = []
    async with opened("guess_number_vf", timeout_seconds=0.001) as (env, _):
        env.report_failed = failures.append
        with contextlib.suppress(IncompleteGroupError):
            await env.collect_trajectories(env.training_items()[0])
    return {"kinds": [each.kind for each in failures], "messages": [each.message for each in failures]}


async def refused() -> dict[str, Any]:
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "hub": ("hub_rows_vf", {}),
        "bash": ("shell_work_vf", {}),
        "limit": ("sort-digits-vf", {"taskset": {"digits": 12}}),
        "unknown": ("sort-digits-vf", {"taskset": {"digit": 3}}),
        "missing": ("textarena", {}),
        "version": ("textarena@0.1", {}),
        "file_version": ("sort-digits-vf@2.0", {}),
        "agent": ("ask_and_answer_vf", {"env_config": {"answerer": {"max_turns": "three"}}}),
        "runtime": ("ask_and_answer_vf", {"env_config": {"asker": {"runtime": {"type": "prime"}}}}),
        "harness": ("sort-digits-vf", {"env_config": {"agent": {"harness": {"id": "bash"}}}}),
        "renderer": ("sort-digits-vf", {"renderer": "qwen33"}),
        "warm": (
            "sort-digits-vf",
            {"env_config": {"agent": {"sampling": {"temperature": 0.5}}}, "eval_greedy": True},
        ),
        "env_id": ("sort-digits-vf", {"env_id": "nowhere"}),
        "held_out": ("sort-digits-vf", {"held_out_taskset": {"digits": 1}}),
        "nothing_left": ("sort-digits-vf", {"held_out_taskset": {"split": "train"}, "eval_items": 500}),
    }
    said = {}
    for case, (name, fields) in cases.items():
        try:
            async with opened(name, **fields):
                said[case] = "it was set up"
        except ConfigError as error:
            said[case] = str(error)
    return said


async def runtimes() -> dict[str, Any]:
    import verifiers.v1 as vf

    seen = {"default": vf.AgentConfig().runtime.type}
    for name in ("sort-digits-vf", "ask_and_answer_vf"):
        async with opened(name) as (env, _):
            agents = env._loaded.env._agent_specs
            seen |= {f"{name}.{agent}": [each.runtime.type, each.harness.id] for agent, each in agents.items()}
    return seen


async def split() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for case, fields in {"first": {}, "split": {"held_out_taskset": {"split": "test"}, "eval_items": 30}}.items():
        async with opened("sort-digits-vf", **fields) as (env, _):
            training, held_out = map(
                set, ([env.question(each) for each in items] for items in (env.training_items(), env.held_out_items()))
            )
            seen[case] = [len(env.training_items()), len(env.held_out_items()), len(training & held_out)]
    async with opened("guess_number_vf", train_items=50) as (env, _):
        seen["endless"] = [len(env.training_items()), len(env.held_out_items())]
        epochs = [[env.question(await env.item_at(position)) for position in range(50)] for _ in range(2)]
        seen["order"] = [epochs[0] == epochs[1], sorted(epochs[0]) == sorted(map(env.question, env.training_items()))]
    return seen


async def evaluation() -> dict[str, Any]:
    async with opened("sort-digits-vf", eval_items=4) as (env, app):
        with sampling("evaluation", 3) as work, contextlib.suppress(Exception):  # no evaluation of step 3 has begun
            await env.roll_out(env.held_out_items()[0], 2, "eval")
            with greedily():
                await env.roll_out(env.held_out_items()[0], 1, "eval")
        told = [asked["sampling_params"] for asked, *_ in app.exchanges]
    return {
        "marks": [[each.get("rl_purpose"), each.get("rl_evaluation")] for each in told],
        "temperatures": [each.get("temperature") for each in told],
        "completions": work.completions,
    }


async def anthropic() -> dict[str, Any]:
    async with opened("sort-digits-vf"):
        before = [name for name in sys.modules if name.partition(".")[0] == "anthropic"]
    from anthropic.types import Message

    return {"before": before, "fields": sorted(Message.model_fields)}


SCENARIOS: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
    each.__name__: each
    for each in (exact, truncated, game, unanswered, failing, slow, refused, runtimes, split, evaluation, anthropic)
}


async def main(names: list[str]) -> dict[str, Any]:
    process_setup.quieten()
    atropos_patches.list_token_ids()
    return {name: await SCENARIOS[name]() for name in names or SCENARIOS}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1:]))))
