"""Agents with real tools and a scripted policy: rewards, sandboxes, evaluations, and what a failure costs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.scripted_agent import ScriptedPolicy, agent_environment, rollout

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.tool_context import ToolContext
from tinker_atropos.environments.rollouts import FailedRollout, Rollout
from tinker_atropos.errors import ConfigError

ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
FAIL = '<tool_call>\n{"name": "fail", "arguments": {}}\n</tool_call>'
NOTHING = {"type": "object", "properties": {}}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def fail() -> None:
    raise OSError("the tool is broken")


class Adds(AgentEnvironment[str]):
    name = "adds"

    @classmethod
    def config_init(cls) -> tuple[AgentConfig, list[object]]:
        return AgentConfig(tokenizer_name="bundled", enabled_toolsets=[], max_token_length=400, max_agent_turns=4), []

    def tools(self) -> Sequence[Tool]:
        return [Tool("add", "Add.", NUMBERS, lambda a, b: a + b), Tool("fail", "Fail.", NOTHING, fail)]

    def training_items(self) -> Sequence[str]:
        return ["2 + 3"]

    def held_out_items(self) -> Sequence[str]:
        return ["3 + 2", "1 + 4"]

    def format_prompt(self, item: str) -> str:
        return item

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffer: list[float] = []

    async def compute_reward(self, item: str, result: AgentResult, ctx: ToolContext) -> dict[str, float]:  # noqa: ARG002
        if result.last_answer == "?":
            raise KeyError("no idea")
        self.buffer.append(1.0)
        return {"right": 0.75 * (result.last_answer == "5"), "called": 0.25 * bool(result.called_tools)}


class Writes(Adds):
    async def compute_reward(self, item: str, result: AgentResult, ctx: ToolContext) -> float:  # noqa: ARG002
        ctx.write_file("answer", result.last_answer)
        return float(ctx.terminal("cat answer")["output"] == "5")


async def test_a_rollout_is_one_sequence_with_its_rewards_by_name() -> None:
    policy = ScriptedPolicy(ADD, "5")
    with agent_environment(Adds, policy) as env:
        outcome = await rollout(env, "2 + 3")
        assert (outcome.score, len(outcome.sequences), outcome.messages) == (1.0, 1, ())
        assert "<|im_start|>tool\n5<|im_end|>" in policy.heard()
        figures = {name: values for name, values in env._figures.items() if "turns_" not in name}
    assert figures == {
        "rewards/right": [0.75], "rewards/called": [0.25], "rollouts/turns": [2], "rollouts/sequences": [1],
        "agent/finished": [True], "agent/tool_calls": [1], "agent/tool_errors": [0],
    }  # fmt: skip


async def test_failing_tools_and_graders_lose_no_other_rollout() -> None:
    """128 at once: each has a tool that fails, every fourth a grader that does."""
    with agent_environment(Adds, ScriptedPolicy(FAIL, ADD, "5")) as env:
        outcomes = await env.roll_out("2 + 3", 128, "train")
        scores = [each.score for each in outcomes if isinstance(each, Rollout)]
        assert len(scores) == 128
    with agent_environment(Adds, ScriptedPolicy("?", "5", "5", "5")) as env:
        outcomes = await env.roll_out("2 + 3", 128, "train")
    failed = [each for each in outcomes if isinstance(each, FailedRollout)]
    assert len(failed) == 32
    assert all(each.kind == "raised" and "KeyError" in each.message and each.tokens == 2 for each in failed)


async def test_an_evaluation_touches_no_buffer_of_training() -> None:
    with agent_environment(Adds, ScriptedPolicy("5"), eval_samples=2) as env:
        evaluation = await env.evaluate()
        assert (evaluation.correct, evaluation.n) == (4 * 0.75, 4)
        assert evaluation.to_metrics()["eval/mean_reward"] == 0.75
        assert (env.buffer, dict(env._figures), env._scores) == ([], {}, [])
        await rollout(env, "2 + 3")
        assert env.buffer == [1.0]


@pytest.mark.process
async def test_a_grader_works_in_the_rollouts_own_sandbox() -> None:
    with agent_environment(Writes, ScriptedPolicy("5", "6")) as env:
        first, second = await env.roll_out("2 + 3", 2, "train")
        assert [first.score, second.score] == [1.0, 0.0]
        assert not env._toolbox._leases


async def test_a_rollout_that_takes_too_long_costs_only_itself() -> None:
    class Hangs(Adds):
        async def compute_reward(self, item: str, result: AgentResult, ctx: ToolContext) -> float:  # noqa: ARG002
            if result.last_answer == "6":
                await asyncio.Event().wait()
            return 1.0

    with agent_environment(Hangs, ScriptedPolicy("5", "6"), rollout_seconds=1.0) as env:
        first, second = await env.roll_out("2 + 3", 2, "train")
    assert isinstance(first, Rollout)
    assert isinstance(second, FailedRollout)
    assert second.kind == "timeout"


async def test_missing_items_are_told() -> None:
    class Empty(Adds):
        def training_items(self) -> Sequence[str]:
            return ()

        held_out_items = training_items

    with agent_environment(Empty, ScriptedPolicy("5")) as env:
        with pytest.raises(ConfigError, match="Empty has no items: define training_items"):
            await env.get_next_item()
        with pytest.raises(ConfigError, match="Empty has no held-out items"):
            await env.evaluate()


def test_unknown_toolsets_are_refused() -> None:
    asked = agent_environment(Adds, ScriptedPolicy("5"), enabled_toolsets=["shell"])
    with pytest.raises(ConfigError, match=r"env\.enabled_toolsets names 'shell'"), asked:
        pass
