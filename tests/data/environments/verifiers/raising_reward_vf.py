"""Its reward divides by zero for every answer but one."""

from collections.abc import Iterator

import verifiers.v1 as vf


class FragileTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def fragile(self, trace: vf.Trace) -> float:
        return 1.0 / (trace.last_reply == "one")


class FragileTaskset(vf.Taskset[FragileTask, vf.TasksetConfig]):
    def load(self) -> Iterator[FragileTask]:
        for index in range(20):
            yield FragileTask(vf.TaskData(prompt=f"Say one ({index})."), self.config.task)


__all__ = ["FragileTaskset"]
