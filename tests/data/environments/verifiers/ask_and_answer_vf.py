"""Two agents: one asks for a sum, the other answers. Both are trained, each by its own reward."""

import re
from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field


class DuetTask(vf.Task[vf.TaskData]):
    pass


class DuetConfig(vf.EnvConfig):
    asker: vf.AgentConfig = vf.AgentConfig()
    answerer: vf.AgentConfig = vf.AgentConfig(max_turns=3)
    largest: int = Field(default=9, ge=1)


class DuetEnv(vf.Env[DuetConfig]):
    async def run(self, task: DuetTask, agents: vf.Agents) -> None:
        asked = await agents.asker.run(task)
        question = asked.last_reply
        answered = await agents.answerer.run(vf.Task(vf.TaskData(prompt=f"Answer: {question}")))
        numbers = [int(each) for each in re.findall(r"[0-9]+", question)]
        valid = bool(numbers) and max(numbers) <= self.config.largest
        asked.record_reward("valid", float(valid))
        answered.record_reward("right", float(valid and answered.last_reply == str(sum(numbers))))


class DuetTaskset(vf.Taskset[DuetTask, vf.TasksetConfig]):
    def load(self) -> Iterator[DuetTask]:
        for index in range(100):
            yield DuetTask(vf.TaskData(prompt=f"Ask for a sum ({index})."), self.config.task)


__all__ = ["DuetEnv", "DuetTaskset"]
