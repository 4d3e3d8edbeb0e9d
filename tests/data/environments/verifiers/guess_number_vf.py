"""Guess a number from 0 to 9: the environment answers higher or lower. Its state counts the guesses."""

import itertools
from collections.abc import Iterator

import verifiers.v1 as vf


class GuessState(vf.State):
    guesses: int = 0


class GuessData(vf.TaskData):
    secret: int


class GuessTask(vf.Task[GuessData, GuessState, vf.TaskConfig]):
    @vf.reward
    async def found(self, trace: vf.Trace) -> float:
        if trace.last_reply != str(self.data.secret):
            return 0.0
        return 1.0 / trace.state.guesses


class GuessEnv(vf.SingleAgentEnv):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                interaction.trace.state.guesses += 1
                if segment.last_reply == str(task.data.secret):
                    break
                higher = segment.last_reply.isdigit() and int(segment.last_reply) < task.data.secret
                segment = await interaction.turn("higher" if higher else "lower")


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self) -> Iterator[GuessTask]:
        for index in itertools.count():
            data = GuessData(name=f"game {index}", prompt="Guess a digit.", secret=index % 10)
            yield GuessTask(data, self.config.task)


__all__ = ["GuessEnv", "GuessTaskset"]
