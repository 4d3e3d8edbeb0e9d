"""The reward of a first answer, without an episode: the tasks' rewards are asked about a trace that is written here."""

from typing import Any

from tinker_atropos.environments.adapters.verifiers.verifiers_package import (
    AgentInfo,
    MessageNode,
    TraceTask,
    state_cls,
    vf,
)


def scores_answers(env: Any) -> bool:
    """Whether a task is one question and its answer is what is scored: its environment adds no turns of its own."""
    return type(env) is vf.SingleAgentEnv


async def answer_reward(task: Any, answer: str) -> float | None:
    """None if no reward can be given without what an episode runs in. Raises what the rewards raise."""
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state_cls(type(task))(),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=[
            MessageNode(message=vf.UserMessage(content=task.data.prompt_text)),
            MessageNode(message=vf.AssistantMessage(content=answer), sampled=True, parent=0),
        ],
        is_completed=True,
        ok=True,
    )
    await task.score(trace, None)
    return float(trace.reward) if trace.rewards else None
