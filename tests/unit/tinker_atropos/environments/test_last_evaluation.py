"""How long an environment may take to end after the run: a clock that skips every wait measures it."""

import asyncio
import selectors
from pathlib import Path
from types import SimpleNamespace

from tinker_atropos.environments.runner.environment_process import _finish
from tinker_atropos.environments.runner.evaluations import EvaluationPlan
from tinker_atropos.environments.runner.run_end import RunEnd
from tinker_atropos.environments.runner.serve_loop import SETUP_SECONDS


class Skipping(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0
        return super().select(0)


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.skipping = Skipping()
        super().__init__(self.skipping)

    def time(self):
        return self.skipping.now


def test_a_replaced_environment_may_set_up_and_then_evaluate():
    plan, rollouts = EvaluationPlan(deadline=900), SimpleNamespace(finished=False)

    async def env_manager():
        await asyncio.sleep(SETUP_SECONDS)
        await asyncio.sleep(plan.deadline)
        rollouts.finished = True

    async def finish():
        ending = RunEnd()
        ending.settle()
        await _finish(SimpleNamespace(env_manager=env_manager), rollouts, ending, Path("mine.py"), plan)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(finish())
    assert rollouts.finished
