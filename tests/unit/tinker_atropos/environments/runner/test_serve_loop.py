import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tinker_atropos.environments.evaluation import Evaluation
from tinker_atropos.environments.runner.evaluations import EvaluationPlan, Evaluations
from tinker_atropos.environments.runner.reporting.heartbeat import HeartbeatAnswer
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.environments.runner.run_end import RunEnd
from tinker_atropos.environments.runner.serve_loop import Deadlines, Rollouts, respect_room

TOTAL_STEPS = 5
ROOMS = {
    "as upstream: no room is named": ({}, 8),
    "unlimited": ({"room": None}, 8),
    "for more groups than workers": ({"room": 1000}, 8),
    "for three groups": ({"room": 12}, 3),
    "for a part of one: it would never be used otherwise": ({"room": 3}, 1),
    "none": ({"room": 0}, 0),
}


@pytest.mark.parametrize(("status", "workers"), ROOMS.values(), ids=ROOMS)
def test_no_more_groups_are_started_than_the_run_still_wants(status, workers):
    env = SimpleNamespace(status_dict=status, max_num_workers=8, config=SimpleNamespace(group_size=4))
    respect_room(env)
    assert env.max_num_workers == workers


class Starting:
    """An environment that is still setting up when it learns that the run is over."""

    def __init__(self, *, index: int, answer: HeartbeatAnswer, counted: int, steps_per_eval: int = 1) -> None:
        self.index, self.answer, self.counted = index, answer, counted
        self.shared = SharedState(total_steps=TOTAL_STEPS)
        self.config = SimpleNamespace(steps_per_eval=steps_per_eval)
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

    async def tell(self) -> None:
        pass

    async def live(self) -> list[int]:
        """The steps at which it evaluates."""
        itself: Any = self
        evaluations = Evaluations(self.shared, itself, itself, itself, EvaluationPlan())
        rollouts = Rollouts(
            self.shared, itself, self.ending, evaluations, Deadlines(), registration=itself, source=Path("mine.py")
        )
        await rollouts.serve(self)
        assert rollouts.finished
        return [record.step for record in self.shared.metrics.records if record.source == "evaluation"]

    source = None


DONE = HeartbeatAnswer(run_over=True, trainer_state="working", reason=None, evaluated_step=0)
UNSEEN = replace(DONE, evaluated_step=None)
AFTER_THE_LAST = TOTAL_STEPS + 1
LATE = {
    "the final weights wait for it": (0, DONE, AFTER_THE_LAST, [TOTAL_STEPS]),
    "the attempt began with all steps trained": (0, UNSEEN, TOTAL_STEPS, [TOTAL_STEPS]),
    "nobody evaluated the untrained weights, and it is too late": (0, UNSEEN, 0, [TOTAL_STEPS]),
    "the one before it evaluated them": (0, replace(DONE, evaluated_step=TOTAL_STEPS), AFTER_THE_LAST, []),
    "the trainer failed": (0, replace(DONE, trainer_state="failed"), AFTER_THE_LAST, []),
    "it is not the one that evaluates": (1, DONE, AFTER_THE_LAST, []),
}


@pytest.mark.parametrize(("index", "answer", "counted", "evaluated"), LATE.values(), ids=LATE)
async def test_one_that_starts_after_training_evaluates_the_final_weights(index, answer, counted, evaluated):
    starting = Starting(index=index, answer=answer, counted=counted)
    assert await asyncio.wait_for(starting.live(), 60) == evaluated


async def test_without_evaluations_the_final_weights_are_not_evaluated_either():
    starting = Starting(index=0, answer=DONE, counted=AFTER_THE_LAST, steps_per_eval=0)
    assert await asyncio.wait_for(starting.live(), 60) == []
