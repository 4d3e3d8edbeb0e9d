"""Which policy an evaluation is of, whatever is trained or lost in the meantime."""

import asyncio
from typing import Any

import pytest

from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy


def policy(step: int) -> Policy:
    sampler: Any = object()
    return Policy(step, sampler)


def trained_to(step: int, opened: int = 0) -> CurrentPolicy:
    current = CurrentPolicy(is_due=lambda step: step % 10 == 0)
    current.swap(policy(opened), opened=True)
    for each in range(opened + 1, step + 1):
        current.swap(policy(each))
    return current


@pytest.mark.parametrize(
    ("trained", "opened", "due", "evaluated"),
    [
        (0, 0, 0, 0),
        (13, 0, 10, 10),  # the environment asks three steps late
        (25, 0, 10, 20),  # so late that the next one is due
        (19, 17, 17, 17),  # a resumed attempt
        (17, 17, 17, 17),
        (15, 0, 14, 15),  # the environment counts in other steps than the trainer: the newest
    ],
)
def test_an_evaluation_is_of_the_weights_of_the_step_at_which_it_is_due(trained, opened, due, evaluated) -> None:
    current = trained_to(trained, opened)
    begun = current.begin_evaluation(due)
    current.swap(policy(trained + 1))
    assert begun is not None
    assert begun.step == evaluated
    assert current.evaluated(evaluated) is begun


def test_only_one_evaluation_is_in_progress() -> None:
    current = trained_to(10)
    current.begin_evaluation(10)
    current.swap(policy(20))
    current.begin_evaluation(20)
    current.end_evaluation(10)  # says the one before, late
    assert current.evaluated(10) is None
    assert current.evaluated(20) is not None
    current.end_evaluation(20)
    assert current.evaluated(20) is None


def test_before_the_backend_answers_there_is_nothing_to_evaluate() -> None:
    assert CurrentPolicy().begin_evaluation(0) is None


async def test_a_lost_snapshot_is_replaced_by_the_same_step_trained_again() -> None:
    current = trained_to(10)
    lost = current.begin_evaluation(10)
    assert lost is not None
    waiting = asyncio.create_task(current.again(lost))
    current.swap(policy(8), opened=True)
    current.swap(policy(9))
    await asyncio.sleep(0)
    assert not waiting.done()
    current.swap(policy(10))
    again = await asyncio.wait_for(waiting, 60)
    assert again is not lost
    assert again is not None
    assert again.step == 10


async def test_a_lost_snapshot_of_a_step_that_is_not_trained_again_ends_the_evaluation() -> None:
    current = trained_to(13)
    lost = current.begin_evaluation(10)
    assert lost is not None
    assert await asyncio.wait_for(current.again(lost), 60) is None
