"""The agent with a calculator: what it is told, and what its rollouts are worth."""

import json
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.scripted_agent import ScriptedPolicy, agent_environment, rollout

from generate.pretraining_batches import TokenizedTask
from generate.pretraining_examples import Calculation, PretrainingTask
from tinker_atropos.environments.bundled import arithmetic
from tinker_atropos.environments.bundled.calculator_agent import CalculatorAgent

ITEM = (37, "*", 48)


def call(expression: str, tool: str = "calculator") -> str:
    arguments = {"name": tool, "arguments": {"expression": expression}}
    return f"<tool_call>\n{json.dumps(arguments)}\n</tool_call>"


async def played(*texts: str, split: str = "train") -> tuple[float, ScriptedPolicy]:
    policy = ScriptedPolicy(*texts)
    with agent_environment(CalculatorAgent, policy) as env:
        return (await rollout(env, ITEM, split)).score, policy


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        ((call("37 * 48"), "1776"), 1.0),
        ((call("37 * 40"), call("1480 + 37 * 8"), "It is 1,776."), 1.0),
        (("1776",), 0.75),
        ((call("37 * 48"), "1767"), 0.25),
        ((call("37 * 47"), "1739"), 0.25),
        ((call("1776"),), 0.25),  # it calls until its turns are used, and never says anything
        (("about 1700",), 0.0),
        ((call("37 * 48", "abacus"), "1"), 0.0),
        ((call("37 ** 48"), "too much"), 0.25),
    ],
)
async def test_rewards(texts: tuple[str, ...], reward: float) -> None:
    assert (await played(*texts))[0] == reward
    assert (await played(*texts, split="eval"))[0] == reward


async def test_the_result_of_a_call_is_told() -> None:
    _, policy = await played(call("37 * 48"), "1776")
    assert policy.heard().endswith("<|im_start|>tool\n1776<|im_end|>\n<|im_start|>assistant\n")


async def test_prompts_are_those_of_pretraining() -> None:
    """Token by token, the first one and the one after the call: else the bundled model knows nothing."""
    _, policy = await played(*("".join(turn.pieces) for turn in Calculation(ITEM).right()))
    first, second = policy.prompts
    tokenized = TokenizedTask(
        _tokenizer(), PretrainingTask("calculator", [Calculation((12, "-", 34))], [Calculation(ITEM)])
    )
    batch = tokenized.held_out()
    pretrained = [*batch.shared_1S[0].tolist(), *batch.inputs_BT[0].tolist()]
    assert pretrained[: len(first)] == first
    assert pretrained[: len(second)] == second
    assert len(pretrained) - len(second) == len("1776")


def test_held_out_items_are_neither_trained_nor_pretrained() -> None:
    environment = object.__new__(CalculatorAgent)
    training, held_out = set(environment.training_items()), set(environment.held_out_items())
    assert not held_out & (training | set(arithmetic.split().pretraining))
    assert len(training) == 8_000
    assert len(held_out) >= 4_000


def test_no_tools_but_its_own() -> None:
    with agent_environment(CalculatorAgent, ScriptedPolicy()) as env:
        schemas, names = env._resolve_tools_for_group()
    assert list(schemas) == [arithmetic.TOOL]
    assert names == {"calculator"}


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    from rl_contract.bundled import resolve_tokenizer

    return AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
