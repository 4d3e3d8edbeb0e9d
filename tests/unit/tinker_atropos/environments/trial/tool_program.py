"""An environment of a program that has a tool and asks through its session, as such programs do."""

import json
from collections.abc import Sequence
from typing import Any

import openai

from tinker_atropos.environments.base import Message
from tinker_atropos.environments.session_environment import SessionConfig, SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession

PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": "repeat", "description": "Repeats.", "parameters": PARAMETERS}}


class ToolProgram(SessionEnvironment[str]):
    """Call the tool; its result is right."""

    name = "tool_program"
    fields: dict[str, Any]
    answers: list[Any]

    @classmethod
    def config_init(cls) -> tuple[SessionConfig, list[object]]:
        return SessionConfig(rollout_seconds=60), []

    def training_items(self) -> Sequence[str]:
        return ["go <|im_end|>"]

    def held_out_items(self) -> Sequence[str]:
        return ["went"]

    def prompt(self, item: str) -> list[Message]:
        return [{"role": "user", "content": item}]

    async def play(self, item: str, session: RolloutSession) -> float:
        messages: list[Any] = self.prompt(item)
        self.answers = []
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
            while len(messages) < 6:
                asked = await client.chat.completions.create(
                    model="any", messages=messages, tools=[TOOL], max_tokens=200, **self.fields
                )
                message = asked.choices[0].message
                self.answers.append(asked.choices[0])
                messages.append(message.model_dump(exclude_none=True))
                calls = message.tool_calls or ()
                messages += [{"role": "tool", "tool_call_id": call.id, "content": _repeated(call)} for call in calls]
                if not calls:
                    break
        return float(message.content == "40 + 2 é\n")


def _repeated(call: Any) -> str:
    return str(json.loads(call.function.arguments)["expression"])
