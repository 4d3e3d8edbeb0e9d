"""Sort digits: one question, one answer."""

import random
from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field


class SortConfig(vf.TasksetConfig):
    digits: int = Field(default=4, ge=2, le=9, description="How many digits are sorted.")
    seed: int = 0
    """Seed of the questions."""
    split: str = "train"


class SortData(vf.TaskData):
    answer: str


class SortTask(vf.Task[SortData]):
    @vf.stop
    async def answered(self, trace: vf.Trace) -> bool:
        return trace.num_turns >= 1

    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class SortTaskset(vf.Taskset[SortTask, SortConfig]):
    def load(self) -> Iterator[SortTask]:
        rng = random.Random(f"{self.config.split} {self.config.seed}")
        for _ in range(200):
            digits = [str(rng.randrange(10)) for _ in range(self.config.digits)]
            data = SortData(prompt="sort " + " ".join(digits), answer="".join(sorted(digits)))
            yield SortTask(data, self.config.task)


__all__ = ["SortTaskset"]
