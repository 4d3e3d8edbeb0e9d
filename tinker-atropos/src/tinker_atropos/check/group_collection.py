"""Items of one environment and their groups, one after the other, through the methods and the patches of a run."""

import inspect
import time
import uuid
from pathlib import Path
from typing import Any, Final

from tinker_atropos.check.group_judge import GroupJudge
from tinker_atropos.check.observations import Observations
from tinker_atropos.check.scripted_sampler import ScriptedSampler
from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.rollout.failures import describe
from tinker_atropos.environments.runner.atropos_patches import AtroposPatches, groups_of
from tinker_atropos.errors import EnvironmentLostError

WRONG_ANSWERS: Final = ("this is not the answer",)
"""Of an environment that names none."""


class NoItemError(Exception):
    """The environment has no item to give."""


class GroupCollection:
    """What one environment makes of its items; groups are judged in the place of being sent."""

    def __init__(
        self, env: Any, source: Path, seen: Observations, judge: GroupJudge, sampler: ScriptedSampler | None
    ) -> None:
        self._env, self._source, self._seen, self._judge, self._sampler = env, source, seen, judge, sampler
        self._sent: list[Any] = []
        self._given_up: EnvironmentLostError | None = None
        AtroposPatches(env, source, seen.counters, self, self._give_up)

    async def collect(self, items: int) -> None:
        """The groups of so many items. Stops early if the environment has no more, or gives up."""
        for _ in range(items):
            item = None
            with self._seen.during("items", self.explain):
                item = await self._next_item()
            if item is not None:
                with self._seen.during("rollouts", self.explain):
                    await self._roll_out(item)
            if self._seen.broken:
                return

    async def send(self, _env: Any, scored: Any) -> None:
        """In the place of the trajectory API (see AtroposPatches.send). BaseEnv would log and forget what this raises:
        groups are judged later.
        """
        self._sent += groups_of(scored)

    async def _next_item(self) -> Any:
        item = self._env.get_next_item()
        if inspect.isawaitable(item):
            item = await item
        if item is None:
            raise NoItemError("get_next_item gave None: after the last item it must begin again with the first")
        return item

    async def _roll_out(self, item: Any) -> None:
        """As BaseEnv.add_train_workers starts it."""
        self._expect(item)
        number, begun = uuid.uuid4(), time.monotonic()
        self._env.running_items[number] = {"item": item, "worker": None, "start_time": time.time()}
        await self._env.handle_env(number)
        if self._given_up:
            raise self._given_up
        self._seen.item_seconds.append(time.monotonic() - begun)
        sent, self._sent = self._sent, []
        self._seen.counters.kept += len(sent)
        self._seen.groups += [await self._judge.judge(group) for group in sent]

    def _expect(self, item: Any) -> None:
        """Tell the sampler what would be right."""
        if self._sampler is None:
            return
        if not isinstance(self._env, SampledEnvironment):
            self._sampler.expect(None, WRONG_ANSWERS)
            return
        gold = self._env.gold_answer(item)
        self._seen.knows_gold = self._seen.knows_gold or gold is not None
        self._sampler.expect(gold, self._env.wrong_answers(item))

    def _give_up(self, error: EnvironmentLostError) -> None:
        self._given_up = error

    def explain(self, error: BaseException) -> str:
        """One sentence, with the line in the environment's file."""
        if isinstance(error, EnvironmentLostError | NoItemError):
            return str(error)
        return describe(error, self._source)
