"""Runs under random faults: all of them succeed, with exactly their steps, and totals that balance.

`RL_CHAOS_RUNS` and `RL_CHAOS_SEED` choose how many and from which seed on: four by default, as in CI, and 200 in
`make chaos`. The first seed is another one with each commit, unless it is given (tests/seeds.py).
"""

import asyncio
import os
from pathlib import Path

import pytest
from tests.conftest import TinkerServiceProcess
from tests.integration.training.chaos import ENV, STEPS, Chaos, Ended, Schedule
from tests.integration.training.conftest import training_half
from tests.seeds import first_seed

pytestmark = pytest.mark.timeout(900)

RUNS = int(os.environ.get("RL_CHAOS_RUNS", "4"))
FIRST_SEED = first_seed()


AT_ONCE = 4
"""A run waits more than it computes: a few of them share two cores well."""


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + RUNS, AT_ONCE))
@pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer",
    "tinker-atropos/src/tinker_atropos/trajectory_api",
    "tinker-atropos/src/tinker_atropos/environments/runner",
)
async def test_runs_under_random_faults(first: int, tmp_path_factory, tinker_service: TinkerServiceProcess) -> None:
    seeds = range(first, min(first + AT_ONCE, FIRST_SEED + RUNS))
    runs = [check_run(seed, tmp_path_factory.mktemp(f"seed-{seed}"), tinker_service) for seed in seeds]
    failures = [error for error in await asyncio.gather(*runs, return_exceptions=True) if error]
    if failures:
        again = f"RL_CHAOS_SEED=n RL_CHAOS_RUNS=1 python -m pytest {__name__.replace('.', '/')}.py"
        raise BaseExceptionGroup(f"of the seeds n = {list(seeds)}; to repeat one: {again}", failures)


async def check_run(seed: int, folder: Path, tinker_service: TinkerServiceProcess) -> None:
    schedule = Schedule.random(seed)
    async with training_half(folder, tinker_service) as half:
        ended = await Chaos(half, schedule).run()
    story = f"{schedule}\nattempts: {ended.attempts}\nresult: {ended.result}\nbooks: {ended.books}\n{ended.logs}"
    assert ended.result["stepsTrained"] == ended.result["totalSteps"] == STEPS, story
    assert ended.result["samplerPath"], story
    assert_balanced(ended, story)


def assert_balanced(ended: Ended, story: str) -> None:
    """Of the last attempt: every received group is accounted for, trained ones were trained once, and all samples are
    reported.

    A group whose `/generate` answer was lost was sampled but never built: only the schedule knows that.
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
