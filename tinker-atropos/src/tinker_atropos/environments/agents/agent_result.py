"""What an agent did: the argument of graders. The names are those of hermes-agent's environments."""

from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
StoppedBy = Literal["finished", "turns", "tokens"]
"""It stopped calling tools; it had used its turns; or the conversation left no room for another answer."""


@dataclass(frozen=True, slots=True)
class ToolError:
    """A call that went wrong. `turn` counts answers from 1; `tool_result` is what the agent was told."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


@dataclass(slots=True)
class AgentResult:
    """`messages`: the whole conversation in OpenAI's form, calls as dicts. `turns_used` counts the agent's answers.

    `managed_state` is always None here: tokens are the session's business.
    """

    messages: list[Message]
    managed_state: dict[str, Any] | None = None
    turns_used: int = 0
    finished_naturally: bool = False
    reasoning_per_turn: list[str | None] = field(default_factory=list)
    tool_errors: list[ToolError] = field(default_factory=list)
    stopped_by: StoppedBy = "finished"

    @property
    def last_answer(self) -> str:
        """The agent's last words; empty if it only called tools."""
        said = (each.get("content") for each in reversed(self.messages) if each.get("role") == "assistant")
        return next((content for content in said if content), "")

    @property
    def called_tools(self) -> list[str]:
        """Names, in the order of the calls."""
        calls = (call for each in self.messages for call in each.get("tool_calls") or ())
        return [call["function"]["name"] for call in calls]
