"""Its tasks are rows of a dataset on a hub."""

from collections.abc import Iterator

import verifiers.v1 as vf
from datasets import load_dataset


class RowTaskset(vf.Taskset[vf.Task[vf.TaskData], vf.TasksetConfig]):
    def load(self) -> Iterator[vf.Task[vf.TaskData]]:
        for row in load_dataset("rl-operator/no-such-rows", split="train"):
            yield vf.Task(vf.TaskData(prompt=row["question"]), self.config.task)


__all__ = ["RowTaskset"]
