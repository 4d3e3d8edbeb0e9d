"""A tool: its name, what it takes and what it does. The table of them (`toolset.TOOLS`) stands behind every door."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from rl_operator.errors import RefusedError
from rl_operator.tools.tool_context import ToolContext

Answer = dict[str, Any]

Effect = Literal["reads", "drafts", "starts", "stops"]
"""What a call may change: nothing, a draft that costs nothing, what begins to cost money, what ends work."""


class Arguments(BaseModel):
    """What a tool takes. Field descriptions are what agents read."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


@dataclass(frozen=True)
class Tool:
    """`description` tells an agent when to call it and what it gets; `call` answers or raises OperatorErrors."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    call: Callable[[ToolContext, Any], Answer]
    effect: Effect

    @property
    def reads_only(self) -> bool:
        return self.effect == "reads"


class ToolRefusedError(RefusedError):
    """A refusal with what helps to do better, beside its sentence: `available`, `locked_value`, `refusals` …"""

    def __init__(self, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.details = details


class NotFoundError(ToolRefusedError):
    """What was named is not there."""
