"""Environments by others, and a conversational one, trained for some steps: every process is real."""

import re
import shutil
from pathlib import Path

import pytest
from tests.integration.training.kept_rollouts import records

from rl_contract.bundled import bundled_model_folder

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments")

DATA = Path(__file__).parents[2] / "data" / "environments"
EXAMPLE = Path(__file__).parents[3] / "examples" / "agent" / "careful_sorter.py"
EVALUATED = {  # completions of one evaluation: seen by the runner, counted by the trainer
    "plain_digits": 8,
    "plain_conversation": 12,
    "plain_tools": 10,
    "plain_game": 6,
    "second_chance": 40,
    "careful_sorter": 40,
}


IN_MERGE = ("plain_digits", "plain_tools", "second_chance")
"""Without logprobs, with tools, and one of ours."""


@pytest.mark.parametrize(
    ("name", "evaluated"),
    [pytest.param(*each, id=each[0], marks=() if each[0] in IN_MERGE else nightly) for each in EVALUATED.items()],
)
async def test_environment_is_trained_on_what_was_sampled(half, name, evaluated) -> None:
    """Whether it sends logprobs or not: no rollout is left out, and all of them have a known policy step."""
    env = {"group_size": 8, "batch_size": 16, "max_token_length": 96}
    if name in ("second_chance", "careful_sorter"):
        env |= {"eval_items": 20, "eval_samples": 2}
    config = half.write_config(env=env)
    await half.start_api()
    trainer = await half.start_trainer(config, RL_ROLLOUTS_DIR=str(half.folder / "rollouts"))
    environment = await half.start(
        "environment",
        str(EXAMPLE if name == "careful_sorter" else DATA / f"{name}.py"),
        "serve",
        "--config",
        str(config),
    )
    await half.reached(trainer, 2)
    points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
    figures = (await half.client.get(f"{trainer.ops_url}/metrics")).text
    await half.ends_well(trainer, environment)

    assert half.result["stepsTrained"] == 3
    assert half.result["metrics"]["baseline"]["samples"] == evaluated
    assert half.result["metrics"]["heldOut"]["samples"] == evaluated
    assert "low" in half.result["metrics"]["heldOut"]
    for point in points:
        assert point["batch/trained_tokens"] == point["batch/received_tokens"] > 0, point
        assert point["batch/recomputed_logprobs"] == point["staleness/unknown"] == 0, point
    sampled = dict(re.findall(r'rl_trainer_sampled_rollouts_total{purpose="(\w+)"} (\S+)', figures))
    assert float(sampled["training"]) >= 2 * 16
    if name not in ("second_chance", "careful_sorter"):  # whose rollouts have two answers
        assert float(sampled["evaluation"]) == evaluated
    for step in (0, 3):
        kept = [one for one in records(half.folder / f"rollouts/{step:06d}-1.jsonl.zst") if one["record"] == "group"]
        answers = [answer for group in kept if group["fate"] == "evaluated" for answer in group["rollouts"]]
        assert len(answers) == evaluated
        known = name in ("second_chance", "careful_sorter")  # of our base class
        assert all((answer["reward"] is not None) == known for answer in answers)
        assert all(any(answer["sequences"][0]["pieces"]) for answer in answers)


@nightly
async def test_a_file_after_hermes_agents_guide_is_trained(half) -> None:
    """Imports, base class, loop and grader by hermes-agent's names; the bundled model's tools are all it cannot use."""
    env = {"group_size": 2, "batch_size": 4, "max_token_length": 440, "enabled_toolsets": ["terminal"], "eval_size": 3}
    config = half.write_config(env=env, tinker={"max_token_trainer_length": 440})
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await half.start("environment", str(DATA / "guide_env.py"), "serve", "--config", str(config))
    await half.ends_well(trainer, environment)
    assert half.result["stepsTrained"] == 3
    assert half.result["metrics"]["baseline"]["value"] == pytest.approx(0.2), "for few turns"


FORGETFUL = """\
{% set message = messages[-1] %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


async def test_rollouts_of_several_sequences_are_one_rollout_each(half) -> None:
    """A template that shows only the last message: a second try is another sequence of the same rollout."""
    tokenizer = half.folder / "tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled_model_folder() / name, tokenizer)
    (tokenizer / "chat_template.jinja").write_text(FORGETFUL)
    env = {"group_size": 8, "batch_size": 16, "tokenizer_name": str(tokenizer), "eval_items": 5}
    config = half.write_config(env=env)
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await half.start("environment", str(DATA / "second_chance.py"), "serve", "--config", str(config))
    await half.reached(trainer, 2)
    points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
    await half.ends_well(trainer, environment)
    for point in points:
        assert point["batch/rollouts"] == point["batch/trained_rollouts"] == 16
        assert 16 < point["batch/trained_sequences"] <= 32
        assert point["batch/trained_tokens"] == point["batch/received_tokens"]
        assert point["batch/recomputed_logprobs"] == point["staleness/unknown"] == 0
