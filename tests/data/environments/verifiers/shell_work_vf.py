"""Its agent works in a shell."""

from collections.abc import Iterator

import verifiers.v1 as vf


class ShellConfig(vf.EnvConfig):
    worker: vf.AgentConfig = vf.AgentConfig(harness={"id": "bash"})


class ShellEnv(vf.Env[ShellConfig]):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.worker.run(task)


class ShellTaskset(vf.Taskset[vf.Task[vf.TaskData], vf.TasksetConfig]):
    def load(self) -> Iterator[vf.Task[vf.TaskData]]:
        for index in range(20):
            yield vf.Task(vf.TaskData(prompt=f"List the files of folder {index}."), self.config.task)


__all__ = ["ShellEnv", "ShellTaskset"]
