"""The adapter with the real library in its real worker processes; only what is sampled is scripted."""

import asyncio
import contextlib

import pytest
from tests.unit.tinker_atropos.environments.scripted_environment import TOKENIZER, alone, output

from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import environment_class
from tinker_atropos.environments.adapters.reasoning_gym.task_worker import TaskSettings, TaskWorkers
from tinker_atropos.environments.items.grader_check import warnings_about_grader
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Rollout
from tinker_atropos.errors import ConfigError

pytestmark = pytest.mark.process

FEW = {"eval_items": 12, "max_token_length": 2000, "group_size": 4}


@contextlib.asynccontextmanager
async def serving(name, **config):
    made = environment_class(name)
    values, _ = made.config_init()
    env = alone(made, **{**values.model_dump(), **FEW, **config})
    env.config.curriculum = made.env_config_cls.model_validate(vars(env.config)).curriculum if name != "mix" else None
    try:
        await env.setup()
        yield env
    finally:
        await env.close()


def answers(env, *texts):
    """Have the policy give these answers in turn."""

    async def generate(_prompt, n, _split):
        await asyncio.sleep(0)
        return [output(texts[index % len(texts)]) for index in range(n)]

    env.generate = generate


async def test_a_run_of_one_task() -> None:
    async with serving("chain_sum", max_terms=3, system_prompt="direct") as env:
        held_out = {item.question for item in env.held_out_items()}
        items = [await env.get_next_item() for _ in range(100)]
        assert len(held_out) == 12
        assert not held_out & {item.question for item in items}
        assert all(item.question.count("+") + item.question.count("- ") <= 2 for item in items), "at most three terms"
        system, user = env.prompt(items[0])
        assert "between <answer> and </answer>" in system["content"]
        assert user == {"role": "user", "content": items[0].question}

        answers(env, env.gold_answer(items[0]), "<answer>no number</answer>", "nothing in tags")
        outcomes = await env.roll_out(items[0], 3, "train")
        assert all(isinstance(each, Rollout) for each in outcomes)
        assert [each.score for each in outcomes] == [1.0, 0.0, 0.0]
        tokens = outcomes[0].sequences[0].tokens
        assert TOKENIZER.decode(tokens).endswith("</answer><|im_end|>")
        assert await warnings_about_grader(env, __file__) == ()


async def test_which_item_is_at_a_position_follows_from_the_seed_alone() -> None:
    """Whatever was asked before: of a task, and of a mixture."""
    for name, config in (("spell_backward", {}), ("mix", {"tasks": {"chain_sum": 3.0, "spell_backward": 1.0}})):
        told = []
        for positions in (range(60), [*range(59, 0, -7), *range(60)]):
            async with serving(name, item_seed=3, size=50, **config) as env:
                told.append({each: await env.item_at(each) for each in positions})
        assert told[0] == told[1]


async def test_an_epoch_has_each_item_once() -> None:
    async with serving("spell_backward", size=30, eval_items=1) as env:
        indexes = [env.order.at(position).index for position in range(60)]
        entries = [(await env.item_in_order(position)).entry["metadata"]["source_index"] for position in range(60)]
    assert env.order.epoch_size == 30
    assert sorted(indexes[:30]) == sorted(indexes[30:]) == sorted(entries[30:]) == list(range(30))


async def test_graders_that_are_wrong_are_found() -> None:
    async with serving("game_of_life_halting") as env:
        [warning] = await warnings_about_grader(env, __file__)
        assert "pays 1 for the worthless answer '<answer>this is not the answer</answer>'" in warning
    async with serving("prime_factorization") as env:
        item = await env.get_next_item()
        assert await env.score_answer(item, "<answer>no number</answer>") == 0.0, "its grader raises ValueError"
        assert env._unjudged == {"prime_factorization": 1}


async def test_a_mixture_has_all_of_its_tasks_by_weight() -> None:
    config = {"tasks": {"chain_sum": 3.0, "spell_backward": 1.0}, "task_config": {"chain_sum": {"max_terms": 2}}}
    async with serving("mix", **config) as env:
        sets = env.held_out_sets()
        assert sets.keys() == {*config["tasks"]}, "each task has its figure, which costs nothing"
        of_main = {id(item) for item in env.held_out_items()[: env.config.eval_items]}
        assert {id(item) for items in sets.values() for item in items} == of_main
        first, second, *_ = env.held_out_items()  # in turns, so that each grader is checked
        assert {first.settings.task, second.settings.task} == {"chain_sum", "spell_backward"}
        tasks = [(await env.get_next_item()).settings.task for _ in range(100)]
        assert tasks.count("chain_sum") == 75
        answers(env, "<answer>0</answer>")
        await env.collect_trajectories(await env.get_next_item())


async def test_a_curriculum_raises_its_field_and_is_continued() -> None:
    levels = {"field": "max_terms", "levels": [2, 6], "raise_at": 0.9, "window": 8}
    async with serving("chain_sum", min_terms=2, curriculum=levels) as env:
        assert any(item.entry["metadata"]["num_terms"] > 2 for item in env.held_out_items()), "those of the last level"
        for _ in range(2):
            item = await env.get_next_item()
            assert item.entry["metadata"]["num_terms"] == 2
            env.was_rewarded(item, [1.0] * 4)
        assert env.saved_state() == '{"level": 1}'
        later = [await env.get_next_item() for _ in range(20)]
        assert any(item.entry["metadata"]["num_terms"] > 2 for item in later)
    async with serving("chain_sum", min_terms=2, curriculum=levels) as env:
        env.restore_state('{"level": 1}')
        assert {(await env.get_next_item()).level for _ in range(5)} == {1}


REFUSED = {
    "what the library asserts": ("chain_sum", {"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
    "a level that it refuses": (
        "chain_sum",
        {"curriculum": {"field": "max_terms", "levels": [3, 1]}},
        "max_terms must be >= min_terms",
    ),
    "a field that the task lacks": (
        "chain_sum",
        {"curriculum": {"field": "terms", "levels": [3, 1]}},
        "env.curriculum.field is 'terms'; chain_sum has min_terms, max_terms",
    ),
    "pools of items": (
        "chain_sum",
        {"difficulty_pools": True},
        "env.difficulty_pools is true: .* let env.curriculum raise",
    ),
    "an unknown task": ("mix", {"tasks": {"chain_sun": 1.0}}, "'chain_sun', which is not a task .* mean 'chain_sum'"),
    "a weight of nothing": ("mix", {"tasks": {"chain_sum": 0.0}}, "every weight must be above 0"),
    "a field of no dataset": (
        "mix",
        {"tasks": {"chain_sum": 1.0}, "task_config": {"chain_sum": {"terms": 3}}},
        "unexpected keyword argument 'terms'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "config", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_refused_settings(name, config, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        async with serving(name, **config):
            pass


async def test_a_task_of_few_items_keeps_some_for_training() -> None:
    few = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "eval_items": 1000}
    async with serving("chain_sum", **few) as env:
        held_out = {item.question for item in env.held_out_items()}
        assert 20 <= len(held_out) <= 60, "a fifth of 200"
        assert not held_out & {(await env.get_next_item()).question for _ in range(200)}
        assert not held_out & {item.question for item in env.training_items()}, "made, but not trained"


async def test_a_grader_that_takes_too_long_costs_one_rollout() -> None:
    """Its process is ended, and another takes its place."""
    async with serving("countdown", scoring_seconds=2.0) as env:
        item = await env.get_next_item()
        answers(env, "<answer>9**9**9**9</answer>", "<answer>1</answer>")
        slow, wrong = await env.roll_out(item, 2, "train")
        assert isinstance(slow, FailedRollout)
        assert (slow.kind, slow.tokens) == ("timeout", len(output("<answer>9**9**9**9</answer>").tokens))
        assert "reasoning-gym took longer than 2 s to score an answer" in slow.message
        assert isinstance(wrong, Rollout)
        assert await env.score_answer(item, env.gold_answer(item)) == 1.0


async def test_items_come_while_a_slow_generator_works() -> None:
    workers = TaskWorkers(30.0)
    try:
        slow = asyncio.create_task(workers.entries(TaskSettings("knight_swap", {"size": 100}), 0, range(40)))
        settings = TaskSettings("chain_sum", {"size": 100})
        entry, *_ = await workers.entries(settings, 0, [0])
        assert await workers.score(settings, f"<answer>{entry['answer']}</answer>", entry) == 1.0
        assert not slow.done(), "it takes seconds, in the other process"
        slow.cancel()
    finally:
        await workers.close()
