import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tinker_atropos.environments.items.held_out import Evaluation
from tinker_atropos.environments.rollout import working_time
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations
from tinker_atropos.environments.runner.loading.environment_files import Deadlines
from tinker_atropos.environments.runner.reporting.heartbeat import HeartbeatAnswer
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import RunEnd
from tinker_atropos.environments.runner.serve_loop import Rollouts, phase_of, work_of

TOTAL_STEPS = 5


async def test_it_wakes_when_a_group_or_the_evaluation_ends():
    worker, evaluation, over = (asyncio.create_task(asyncio.Event().wait()) for _ in range(3))
    over.cancel()
    await asyncio.wait({over})
    assert work_of(SimpleNamespace(workers={worker}, eval_runner=evaluation)) == {worker, evaluation}
    assert work_of(SimpleNamespace(workers=set(), eval_runner=over)) == set()
    assert work_of(SimpleNamespace(workers={worker}, eval_runner=None)) == {worker}
    for task in (worker, evaluation):
        task.cancel()


@pytest.mark.parametrize(
    ("env", "phase"),
    [
        (SimpleNamespace(rollouts_wait_for="a sandbox"), "waiting for a sandbox"),
        (SimpleNamespace(rollouts_wait_for=None), "making rollouts"),
        (SimpleNamespace(), "making rollouts"),
    ],
)
def test_the_phase_says_what_rollouts_wait_for(env, phase):
    assert phase_of(env, SharedState(total_steps=TOTAL_STEPS)) == phase


def test_the_phase_says_that_a_disk_is_full(monkeypatch):
    monkeypatch.setattr(WORKING_TIME, "full_disks", ["[Errno 28] No space"])
    phase = phase_of(SimpleNamespace(rollouts_wait_for="a sandbox"), SharedState(total_steps=TOTAL_STEPS))
    assert phase == "waiting for room on a disk: [Errno 28] No space"


async def test_a_pause_makes_no_rollout_overdue(monkeypatch):
    clock, ended, worker = [0.0], [], asyncio.create_task(asyncio.Event().wait())
    monkeypatch.setattr(working_time, "running_seconds", lambda: clock[0])
    monkeypatch.setattr(WORKING_TIME, "paused", 0.0)
    config = SimpleNamespace(worker_timeout=60.0)
    env = SimpleNamespace(config=config, running_items={1: {"worker": worker}}, workers={worker})
    items: Any = SimpleNamespace(end=lambda *told: ended.append(told))
    shared, none = SharedState(total_steps=TOTAL_STEPS), cast(Any, None)
    rollouts = Rollouts(shared, none, none, none, none, none, items=items, source=none)
    rollouts._drop_overdue(env)
    clock[0] += 3600
    WORKING_TIME.was_paused(3600)
    rollouts._drop_overdue(env)
    assert (ended, env.workers) == ([], {worker})
    clock[0] += 61
    rollouts._drop_overdue(env)
    assert (ended, env.workers) == ([(None, "overdue")], set())


def test_the_phase_says_that_all_groups_fail_and_stays_while_they_fail_in_one_way():
    shared, env = SharedState(total_steps=TOTAL_STEPS), SimpleNamespace(rollouts_wait_for="a sandbox")
    phases = []
    for failure in [*(f"item {9 * number} is missing: {'x' * 300}\nmore" for number in range(6)), "KeyError: 'x'"]:
        shared.counters.has_failed("raised", failure)
        shared.phase = phase_of(env, shared)
        phases.append(shared.phase)
    shown = f"item 27 is missing: {'x' * 300}"[:200]
    failing = f"making groups that all fail: {shown}"
    assert phases == [*["waiting for a sandbox"] * 3, *[failing] * 3, "making groups that all fail: KeyError: 'x'"]
    shared.counters.was_kept()
    assert phase_of(env, shared) == "waiting for a sandbox"


class Starting:
    """An environment that is still setting up when it learns that the run is over."""

    def __init__(self, *, index: int, answer: HeartbeatAnswer, counted: int, steps_per_eval: int = 1) -> None:
        self.index, self.answer, self.counted = index, answer, counted
        self.shared = SharedState(total_steps=TOTAL_STEPS)
        self.config = SimpleNamespace(steps_per_eval=steps_per_eval, batch_size=8, group_size=4)
        self.workers: set[Any] = set()
        self.eval_runner = None
        self.curr_step = 0
        self.status_dict: dict[str, Any] = {}
        self.ending = RunEnd()

    async def setup(self) -> None:
        self.ending.settle()
        for _ in range(20):  # turns of the event loop, in which the end is noticed
            await asyncio.sleep(0)

    async def register(self, _env: Any, _deadline: float) -> None:
        self.curr_step = self.counted

    async def get_server_info(self) -> None:
        pass

    async def get_status(self) -> None:
        self.status_dict = {"current_step": self.counted}

    async def evaluate(self) -> Evaluation:
        return Evaluation(correct=3, n=4)

    @contextlib.asynccontextmanager
    async def pinned(self, due_step: int) -> AsyncIterator[int]:
        yield due_step

    async def tell_answers(self) -> None:
        pass

    async def tell(self) -> None:
        pass

    report_last = tell

    async def live(self) -> list[int]:
        """The steps at which it evaluates."""
        itself: Any = self
        evaluations = Evaluations(self.shared, itself, itself, itself, EvaluationPlan())
        rollouts = Rollouts(
            self.shared, itself, self.ending, evaluations, Deadlines(), itself, items=itself, source=Path("mine.py")
        )
        await rollouts.serve(self)
        assert rollouts.finished
        return [record.step for record in self.shared.metrics.records if record.source == "evaluation"]

    source = None


DONE = HeartbeatAnswer(run_over=True, trainer_state="working", reason=None, evaluated_step=0, steps_trained=TOTAL_STEPS)
UNSEEN = replace(DONE, evaluated_step=None)
AFTER_THE_LAST = TOTAL_STEPS + 1
LATE = {
    "the final weights wait for it": (0, DONE, AFTER_THE_LAST, [TOTAL_STEPS]),
    "the attempt began with all steps trained": (0, UNSEEN, TOTAL_STEPS, [TOTAL_STEPS]),
    "nobody evaluated the untrained weights, and it is too late": (0, UNSEEN, 0, [TOTAL_STEPS]),
    "the one before it evaluated them": (0, replace(DONE, evaluated_step=TOTAL_STEPS), AFTER_THE_LAST, []),
    "it stopped early": (0, replace(DONE, steps_trained=3), AFTER_THE_LAST, [3]),
    "it stopped early with weights that were evaluated": (
        0,
        replace(DONE, steps_trained=3, evaluated_step=3),
        AFTER_THE_LAST,
        [],
    ),
    "the trainer failed": (0, replace(DONE, trainer_state="failed"), AFTER_THE_LAST, []),
    "it is not the one that evaluates": (1, DONE, AFTER_THE_LAST, []),
}


@pytest.mark.parametrize(("index", "answer", "counted", "evaluated"), LATE.values(), ids=LATE)
async def test_one_that_starts_after_training_evaluates_the_final_weights(index, answer, counted, evaluated):
    starting = Starting(index=index, answer=answer, counted=counted)
    assert await asyncio.wait_for(starting.live(), 60) == evaluated


class WaitsForSandbox(Starting):
    """Its evaluation ends once this is told."""

    rollouts_wait_for = "a sandbox"

    async def evaluate(self) -> Evaluation:
        async with asyncio.timeout(60):
            while self.shared.phase != "waiting for a sandbox":
                await asyncio.sleep(0.01)
        return await super().evaluate()


async def test_the_phase_also_says_what_an_evaluation_waits_for():
    starting = WaitsForSandbox(index=0, answer=DONE, counted=AFTER_THE_LAST)
    assert await starting.live() == [TOTAL_STEPS]


async def test_without_evaluations_the_final_weights_are_not_evaluated_either():
    starting = Starting(index=0, answer=DONE, counted=AFTER_THE_LAST, steps_per_eval=0)
    assert await asyncio.wait_for(starting.live(), 60) == []
