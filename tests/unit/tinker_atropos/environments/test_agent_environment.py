"""Agents with real tools and a scripted policy: rewards, sandboxes, evaluations, and what a failure costs."""

import asyncio
import contextlib
import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from atroposlib.envs.base import APIServerConfig
from tests.unit.tinker_atropos.environments.scripted_agent import ScriptedPolicy, agent_environment, rollout
from tests.unit.tinker_atropos.sandboxes.pod_servers import OWNER, PodProcess

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment, with_key
from tinker_atropos.environments.agents import sandbox_turns
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.sandbox_turns import SandboxSource
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.tool_context import ToolContext
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Rollout
from tinker_atropos.environments.rollout.sampled_work import item_under_way
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.sandbox import NotIsolatedError, SandboxLostError

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


async def test_an_agents_sets_have_their_mean_reward_and_no_pass_at_k() -> None:
    """All its samples are greedy: they say nothing about what several tries would find."""

    class Sets(Adds):
        def held_out_sets(self) -> dict[str, Sequence[str]]:
            return {"first": self.held_out_items()[:1]}

    with agent_environment(Sets, ScriptedPolicy("5"), eval_samples=2) as env:
        metrics = (await env.evaluate()).to_metrics()
        assert (metrics["eval/first/mean_reward"], metrics["eval/first/n"], metrics["eval/n"]) == (0.75, 2, 4)
        assert not [name for name in metrics if "pass" in name or "greedy" in name]
        assert env.worth(0.75) == 0.75, "its figure is the mean of rewards"
    with (
        agent_environment(Adds, ScriptedPolicy("5"), eval_greedy=True) as env,
        pytest.raises(ConfigError, match="eval_greedy is true, and all evaluations of agents are greedy: leave it out"),
    ):
        env.check_config()


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


async def test_the_toolsets_of_a_group_follow_from_its_item() -> None:
    with agent_environment(Adds, ScriptedPolicy("5"), distribution="development", enabled_toolsets=None) as env:
        drawn = []
        for position in (*range(20), *range(20)):
            item_under_way.set(position)
            drawn.append(frozenset(env._resolve_tools_for_group()[1]))
    assert drawn[:20] == drawn[20:]
    assert len(set(drawn)) > 1


class Crowd:
    """The rollouts in play: how many now, at most, and in all; those of the item `held` until `go` is set."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0
        self.go = asyncio.Event()

    async def entered(self, item: str) -> None:
        self.now, self.total = self.now + 1, self.total + 1
        self.most = max(self.most, self.now)
        try:
            if item == "held":
                await self.go.wait()
        finally:
            self.now -= 1

    async def counts(self, number: int) -> None:
        async with asyncio.timeout(60):
            while self.now != number:
                await asyncio.sleep(0.01)


class Watched(Adds):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.crowd = Crowd()

    async def compute_reward(self, item: str, result: AgentResult, ctx: ToolContext) -> float:  # noqa: ARG002
        await self.crowd.entered(item)
        return 1.0


class ReusedPool:
    """Of two sandboxes that no test uses, so that the next rollout gets them again."""

    def __init__(self) -> None:
        self.free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.free.put("one")
        self.free.put("two")

    def lease(self, is_wanted: Callable[[], bool]) -> Any:
        while is_wanted():
            with contextlib.suppress(queue.Empty):
                return self.free.get(timeout=0.01)
        raise SandboxLostError("nobody wants it")

    def give_back(self, sandbox: Any) -> None:
        self.free.put(sandbox)

    def close(self) -> None:
        pass


@pytest.fixture
def two_pods(monkeypatch: pytest.MonkeyPatch) -> ReusedPool:
    pool = ReusedPool()
    source = SandboxSource(lambda: pool, capacity=2)
    monkeypatch.setattr("tinker_atropos.environments.agent_environment.sandbox_source", lambda *_: source)
    return pool


def test_a_prompt_has_its_tools() -> None:
    """What is asked first is what is counted, before anything is sampled."""
    policy = ScriptedPolicy("5")
    with agent_environment(Adds, policy) as env:
        env.check_config()
        asyncio.run(rollout(env, "3 + 2"))
        assert env.first_prompt("3 + 2") == policy.prompts[0]
    with (
        agent_environment(Adds, policy, max_token_length=len(policy.prompts[0])) as env,
        pytest.raises(ConfigError, match=f"prompts of this environment have {len(policy.prompts[0])} tokens and more"),
    ):
        env.check_config()


def test_where_nothing_can_be_kept_apart_tools_of_sandboxes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial() -> None:
        raise NotIsolatedError("no namespaces")

    source = SandboxSource(ReusedPool, trial=trial)
    monkeypatch.setattr("tinker_atropos.environments.agent_environment.sandbox_source", lambda *_: source)
    with agent_environment(Adds, ScriptedPolicy("5")) as env:
        env.check_config()
    with (
        agent_environment(Adds, ScriptedPolicy("5"), enabled_toolsets=["terminal"], max_token_length=2048) as env,
        pytest.raises(ConfigError, match="no namespaces"),
    ):
        env.check_config()


async def test_as_many_rollouts_play_as_can_have_a_sandbox(two_pods: ReusedPool) -> None:
    with agent_environment(Watched, ScriptedPolicy("5"), eval_samples=3) as env:
        held = asyncio.create_task(env.roll_out("held", 1, "train"))
        await env.crowd.counts(1)
        outcomes = await env.roll_out("2 + 3", 8, "train")
        evaluation = await env.evaluate()
        env.crowd.go.set()
        assert all(isinstance(each, Rollout) for each in [*outcomes, *await held])
    assert (env.crowd.most, env.crowd.total, evaluation.n) == (2, 8 + 6 + 1, 6)


async def test_a_rollout_that_waits_for_its_turn_loses_no_time(two_pods: ReusedPool) -> None:
    """Those before it use all of theirs."""
    with agent_environment(Watched, ScriptedPolicy("5"), rollout_seconds=0.5) as env:
        held = asyncio.create_task(env.roll_out("held", 4, "train"))
        await env.crowd.counts(2)
        (outcome,) = await env.roll_out("2 + 3", 1, "train")
        assert isinstance(outcome, Rollout)
        assert [each.kind for each in await held] == ["timeout"] * 4


async def test_the_wait_for_a_sandbox_is_logged_and_known(two_pods, monkeypatch):
    """Of training only: it is its figures that are logged with a step."""
    monkeypatch.setattr(sandbox_turns, "PATIENCE_SECONDS", 0)
    with agent_environment(Watched, ScriptedPolicy("5")) as env:
        await env.evaluate()
        assert "agent/sandbox_wait" not in env._figures
        taken = [two_pods.free.get(), two_pods.free.get()]
        waiting = asyncio.create_task(env.roll_out("2 + 3", 3, "train"))
        async with asyncio.timeout(60):
            while env.rollouts_wait_for is None:
                await asyncio.sleep(0)
        assert env.rollouts_wait_for == "a sandbox"
        two_pods.give_back(taken[0])
        await waiting
        assert env.rollouts_wait_for is None
        waits = env._figures["agent/sandbox_wait"]
        assert len(waits) == 3
        assert all(wait > 0 for wait in waits)


@pytest.mark.parametrize(("limit", "seconds"), [(60.0, 60.0), (3600.0, 900.0), (-1.0, 900.0), (600.0, 900.0)])
def test_with_pods_the_time_of_a_group_is_that_of_each_rollout(two_pods, limit, seconds):
    """600 is the default: whoever wants no more for a rollout says so by rollout_seconds."""
    with agent_environment(Watched, ScriptedPolicy("5"), rollout_seconds=900.0, worker_timeout=limit) as env:
        assert (env.config.worker_timeout, env.config.rollout_seconds) == (-1, seconds)


async def test_a_rollout_that_waits_can_be_canceled(two_pods: ReusedPool) -> None:
    with agent_environment(Watched, ScriptedPolicy("5")) as env:
        held = asyncio.create_task(env.roll_out("held", 2, "train"))
        await env.crowd.counts(2)
        waiting = asyncio.create_task(env.roll_out("2 + 3", 2, "train"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        env.crowd.go.set()
        await held
        assert len(await env.roll_out("2 + 3", 2, "train")) == 2
        assert (env.crowd.total, env.crowd.most) == (4, 2)
        assert two_pods.free.qsize() == 2, "also the one that came too late"


async def test_a_rollout_begins_when_there_is_a_sandbox_for_it(two_pods: ReusedPool) -> None:
    """A place is free as soon as a rollout is over, the next pod is there some seconds later."""
    taken = [two_pods.free.get(), two_pods.free.get()]
    with agent_environment(Watched, ScriptedPolicy("5"), rollout_seconds=0.5) as env:
        waiting = asyncio.create_task(env.roll_out("2 + 3", 1, "train"))
        await asyncio.sleep(0.7)  # more than it would have
        two_pods.give_back(taken[0])
        (outcome,) = await waiting
        assert isinstance(outcome, Rollout)


async def test_a_rollout_without_a_sandbox_is_counted(two_pods: ReusedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_free(*_: Any) -> Any:
        raise SandboxLostError("no sandbox was free")

    monkeypatch.setattr(two_pods, "lease", none_is_free)
    with agent_environment(Watched, ScriptedPolicy("5")) as env:
        (outcome,) = await env.roll_out("2 + 3", 1, "train")
        assert isinstance(outcome, FailedRollout)
        assert "no sandbox was free" in outcome.message


async def test_without_pods_all_play_at_once() -> None:
    with agent_environment(Watched, ScriptedPolicy("5")) as env:
        held = asyncio.create_task(env.roll_out("held", 64, "train"))
        await env.crowd.counts(64)
        env.crowd.go.set()
        await held
        assert (env.config.worker_timeout, env.rollouts_wait_for) == (600, None)


@pytest.mark.process
async def test_a_grader_works_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is found by a name, leased, used, and ends with the rollout."""
    with PodProcess(tmp_path) as served:
        host, port = served.address
        where = {"HOST": host, "PORT": str(port), "SHARE": "2"}
        for name, value in {"RL_RUN_UID": OWNER, **{f"RL_SANDBOX_{n}": v for n, v in where.items()}}.items():
            monkeypatch.setenv(name, value)
        with agent_environment(Writes, ScriptedPolicy("5")) as env:
            assert (await rollout(env, "2 + 3")).score == 1.0
            assert served.exit_code() == 0
        assert (served.folder / "answer").read_text() == "5"


def test_unknown_toolsets_are_refused() -> None:
    asked = agent_environment(Adds, ScriptedPolicy("5"), enabled_toolsets=["shell"])
    with pytest.raises(ConfigError, match=r"env\.enabled_toolsets names 'shell'"), asked:
        pass


@pytest.mark.parametrize(
    ("given", "usual", "used"),
    [("", "sk-usual", "sk-usual"), ("sk-own", "sk-usual", "sk-own"), ("", "", "none")],
    ids=["the usual variable", "a key of its own", "no key"],
)
def test_a_provider_gets_the_key_that_there_is(monkeypatch, given, usual, used):
    monkeypatch.setenv("OPENAI_API_KEY", usual)
    [server] = with_key([APIServerConfig(api_key=given, model_name="m")])
    assert (server.api_key, server.model_name) == (used, "m")
    assert used == "none" or used not in repr(server)
