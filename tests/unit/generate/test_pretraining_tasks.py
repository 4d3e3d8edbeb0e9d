"""What the bundled model is pre-trained on: examples that earn the reward, mistakes that do not, and no leaks."""

import random
from collections.abc import Sequence

import pytest

from generate.pretraining_examples import Example, PretrainingTask, swapped
from generate.pretraining_tasks import GYM_DATASETS, pretraining_tasks
from tinker_atropos.environments.adapters.reasoning_gym.library import create_dataset, extract_answer
from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import HELD_OUT_SEED


@pytest.fixture(scope="module")
def tasks() -> dict[str, PretrainingTask]:
    return {task.name: task for task in pretraining_tasks()}


def questions(examples: Sequence[Example]) -> set[str]:
    return {example.messages()[-1]["content"] for example in examples}


def test_no_held_out_question_is_in_pretraining(tasks: dict[str, PretrainingTask]) -> None:
    assert tasks.keys() == {"sort", *GYM_DATASETS, "calculator"}
    for task in tasks.values():
        assert len(task.held_out) >= 300
        assert len(task.pretraining) >= 3_000
        assert not questions(task.pretraining) & questions(task.held_out)


@pytest.mark.parametrize("name", GYM_DATASETS)
def test_the_library_rewards_answers_and_not_mistakes(name: str, tasks: dict[str, PretrainingTask]) -> None:
    task, rng = tasks[name], random.Random(0)
    dataset = create_dataset(name, seed=HELD_OUT_SEED, size=50, **GYM_DATASETS[name])
    examples = {example.messages()[-1]["content"]: example for example in task.held_out}
    for item in dataset:
        right, wrong = (
            "".join(turn.pieces)
            for example in [examples[item["question"]]]
            for (turn,) in (example.right(), example.wrong(rng))
        )
        assert dataset.score_answer(extract_answer(right), item) == 1.0
        rewarded = dataset.score_answer(extract_answer(wrong), item) >= 1.0
        assert rewarded == (wrong.lower() == right.lower()), "equal letters may be swapped"


def test_a_conversation_has_a_system_prompt_if_there_is_one(tasks: dict[str, PretrainingTask]) -> None:
    assert [message["role"] for message in tasks["sort"].held_out[0].messages()] == ["user"]
    assert [message["role"] for message in tasks["rotate_matrix"].held_out[0].messages()] == ["system", "user"]


def test_a_mistake_swaps_letters_or_digits() -> None:
    rng = random.Random(0)
    assert {swapped("1 2\n3", rng) for _ in range(50)} == {"2 1\n3", "3 2\n1", "1 3\n2"}
