"""Runs under random faults: all of them succeed, with exactly their steps, and books that balance.

`RL_CHAOS_RUNS` and `RL_CHAOS_SEED` choose how many and from which seed on: `.ci/run` makes 20, `make chaos` 200.
"""

import os

import pytest
from tests.integration.training.chaos import ENV, STEPS, Chaos, Ended, Schedule

pytestmark = pytest.mark.timeout(900)

RUNS = int(os.environ.get("RL_CHAOS_RUNS", "3"))
FIRST_SEED = int(os.environ.get("RL_CHAOS_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RUNS))
async def test_a_run_under_random_faults(half, seed: int) -> None:
    schedule = Schedule.random(seed)
    ended = await Chaos(half, schedule).run()
    story = f"{schedule}\nattempts: {ended.attempts}\nresult: {ended.result}\nbooks: {ended.books}\n{ended.logs}"
    assert ended.result["stepsTrained"] == ended.result["totalSteps"] == STEPS, story
    assert ended.result["samplerPath"], story
    assert_balanced(ended, story)


def assert_balanced(ended: Ended, story: str) -> None:
    """Of the last attempt: what came is somewhere, what was trained was trained once, all that was sampled is told.

    A group whose `/generate` answer was lost was sampled and never made: that is the one thing only the schedule knows.
    """
    groups, rollouts, totals = ended.books["groups"], ended.books["rollouts"], ended.books["totals"]
    for books in (groups, rollouts):
        held = sum(books[state] for state in ("buffered", "queued", "delivered", "trained"))
        assert books["received"] == held + sum(books["dropped"].values()), story
    assert rollouts["trained"] == (STEPS - ended.began_at) * ENV["batch_size"], story
    assert totals["trained_rollouts"] == rollouts["trained"], story
    if not ended.runner_ended:
        return
    runner = ended.runner
    assert runner["env/groups_kept"] == groups["received"] + runner["env/groups_refused"], story
    made = runner["env/groups_kept"] + runner["env/groups_filtered"]
    lost = totals["sampled_rollouts"] / ENV["group_size"] - made
    assert 0 <= lost <= ended.answers_lost, story
