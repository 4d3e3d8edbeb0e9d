"""mini-swe-agent and openai-agents as programs of a harness: as they come, with a scripted policy that calls tools."""

import os
from pathlib import Path

import pytest
from tests.unit.tinker_atropos.environments.harness_programs import one_rollout, serving
from tests.unit.tinker_atropos.environments.scripted_environment import TOKENIZER

from tinker_atropos.environments.rollout.rollouts import Rollout

pytestmark = pytest.mark.process

PROGRAM = str(Path(__file__).with_name("agents_program.py"))
ENV_VARS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no list of prices from the network
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_GLOBAL_CONFIG_DIR": "config",
    "MSWEA_SILENT_STARTUP": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


AGENTS = {
    "mini-swe-agent": (
        call("bash", '{"command": "echo 4132 | fold -w1 | sort | tr -d \'\\\\n\' > sorted"}'),
        call("bash", '{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat sorted"}'),
    ),
    "openai-agents": (call("sort_digits", '{"digits": "4132"}'), "1234"),
}


@pytest.mark.parametrize(("agent", "texts"), AGENTS.items(), ids=AGENTS)
@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/agents", "tinker-atropos/src/tinker_atropos/chat")
async def test_an_agent_that_knows_nothing_of_training(agent, texts, monkeypatch):
    python = os.environ.get("RL_AGENTS_PYTHON")
    if not python:
        pytest.skip("needs RL_AGENTS_PYTHON: a Python with mini-swe-agent and openai-agents")
    # A sandbox hides the folder of temporary files, unless programs lie in it.
    monkeypatch.setenv("PATH", f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}")
    command = [python, PROGRAM, agent, "{prompt}"]
    config = {"answer_from": "last_line", "env_vars": ENV_VARS, "max_token_length": 8000, "rollout_seconds": 120}
    async with serving(command, texts=texts, **config) as env:
        outcome = await one_rollout(env)
        assert isinstance(outcome, Rollout), outcome
        [sequence] = outcome.sequences  # its history goes on from what was sampled: nothing is trained twice
        assert outcome.score == 1.0
        assert all(text in TOKENIZER.decode(sequence.tokens) for text in texts)
        assert env._figures["rollouts/turns"] == [2]
        assert env._figures["rollouts/turns_unmatched"] == [0]
