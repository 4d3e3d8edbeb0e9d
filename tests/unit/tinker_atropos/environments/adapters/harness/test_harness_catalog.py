"""The environments `harness/…`, as the catalog tells them and as their classes are."""

import json

import pytest
from tests.unit.tinker_atropos.environments.harness_programs import one_rollout, python, serving

from tinker_atropos.environments.adapters.harness.harness_catalog import discover_harnesses
from tinker_atropos.environments.adapters.harness.task_harness import environment_class
from tinker_atropos.errors import ConfigError

FOUND = discover_harnesses()
[FAMILY] = FOUND.families
BY_NAME = {each.name.partition("/")[2]: each for each in FOUND.environments}


def test_single_answers_are_tasks_and_conversations_are_not():
    assert {"sort_digits", "reasoning-gym/mix"} <= BY_NAME.keys()
    assert not {"openenv", "calculator_agent"} & BY_NAME.keys()
    assert {each.family for each in FOUND.environments} == {"harness"}


def test_what_is_told_of_all_is_told_once():
    assert {"command", "score", "answer_from", "rollout_seconds", "max_token_length"} <= {
        each.name for each in FAMILY.fields
    }
    assert {each.name for each in BY_NAME["sort_digits"].fields} == {"batch_size", "total_steps"}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_catalog_has_the_fields_and_defaults_of_the_class(name: str):
    told = {each.name: each.default for each in (*FAMILY.fields, *BY_NAME[name].fields)}
    config, _ = environment_class(name).config_init()
    assert told == json.loads(config.model_dump_json())


def test_an_unknown_task():
    with pytest.raises(ConfigError, match="there is no environment 'harness/sort_digit'; did you mean 'sort_digits'"):
        environment_class("sort_digit")


@pytest.mark.process
async def test_a_task_of_reasoning_gym_is_scored_by_its_library() -> None:
    config = {"tasks": {"chain_sum": 1.0}, "eval_items": 4, "size": 20}
    async with serving(python("print(ask(sys.argv[1]))", "{prompt}"), task="reasoning-gym/mix", **config) as env:
        item = await env.get_next_item()
        env.server.texts = [env.gold_answer(item)]
        assert (await one_rollout(env, item)).score == 1.0
        env.server.texts = ["<answer>nothing</answer>"]
        assert (await one_rollout(env, item)).score == 0.0
