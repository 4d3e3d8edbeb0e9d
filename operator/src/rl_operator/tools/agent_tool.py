"""A tool: its name, what it takes and what it does. The table of them (`toolset.TOOLS`) is behind every interface.

Also the JSON schema of a tool's arguments, as small as models can use it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from rl_operator.operator_errors import RefusedError
from rl_operator.tools.call_context import CallContext

Answer = dict[str, Any]

Effect = Literal["reads", "drafts", "starts", "stops"]
"""What a call may change: nothing, a draft (which costs nothing), the start of costs, the end of work."""


class Arguments(BaseModel):
    """What a tool takes. Field descriptions are what agents read.

    Some clients send every parameter: null means left out, except for one that takes any value. Some models send lists
    and objects as JSON text.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: dict[str, object]) -> dict[str, object]:
        return {name: value for name, each in given.items() if (value := cls._read(name, each)) is not _LEFT_OUT}

    @classmethod
    def _read(cls, name: str, value: object) -> Any:
        field = cls.model_fields.get(name)
        if field is None or field.annotation is Any:
            return value
        if value is None:
            return _LEFT_OUT
        if not isinstance(value, str) or str in _types_of(field.annotation):
            return value
        try:
            return json.loads(value) if value.lstrip()[:1] in ("[", "{") else value
        except (ValueError, RecursionError):
            return value


_LEFT_OUT: Final = object()


def _types_of(annotation: object) -> tuple[object, ...]:
    """`str | None` is str or None; `tuple[str, ...] | None` is neither."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


Run = Annotated[str, Field(min_length=1, max_length=63, description="Name, or its last 8 characters.")]
OptionalRun = Annotated[str | None, Field(max_length=63, description="Default: your latest.")]
"""A parameter that says which run is meant."""

ANY_JSON: Final[JsonDict] = {"type": ["string", "number", "boolean", "object", "array", "null"], "items": {}}
"""The schema of a parameter that takes any value: some clients refuse one without a type, or an array without items."""


@dataclass(frozen=True)
class AgentTool:
    """`description` tells an agent when to call it and what it gets; `call` answers or raises OperatorErrors."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    call: Callable[[CallContext, Any], Answer]
    effect: Effect

    @property
    def reads_only(self) -> bool:
        return self.effect == "reads"

    def waits(self, arguments: Mapping[str, object]) -> bool:
        """Whether a call with these arguments waits for a run."""
        return bool(arguments.get("wait_seconds")) or self.effect == "stops"


def agent_tool(
    title: str, description: str, effect: Effect
) -> Callable[[Callable[[CallContext, Any], Answer]], AgentTool]:
    """Makes a tool of a function: it has its name, and takes what its second parameter is annotated with."""

    def made(call: Callable[[CallContext, Any], Answer]) -> AgentTool:
        _, asked = signature(call).parameters.values()
        return AgentTool(call.__name__, title, description, asked.annotation, call, effect)

    return made


class ToolRefusedError(RefusedError):
    """A refusal with helpful details besides its sentence: `available`, `locked_value`, `refusals` …"""

    def __init__(self, sentence: str, **details: object) -> None:
        super().__init__(sentence)
        self.details = details


class NoSuchRunError(ToolRefusedError):
    """The named object does not exist."""


def input_schema(tool: AgentTool) -> dict[str, object]:
    """JSON Schema 2020-12, in few tokens: agents pay for them in every conversation. A call is refused with a sentence
    for what is not stated: unknown parameters, and limits. That null means left out is not stated either.
    """
    schema = tool.arguments.model_json_schema()
    properties = {name: _plain(each) for name, each in schema.get("properties", {}).items()}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties, **required}


_STATED: Final = ("type", "enum", "items", "anyOf", "default", "description")


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter. Null is not among its types, and a default is stated where it says something."""
    types = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    merged = {**rest, **types[0]} if len(types) == 1 else {**rest, "anyOf": types} if types else rest
    kept = {name: value for name, value in merged.items() if name in _STATED}
    if not kept.get("default", True):
        del kept["default"]
    if "anyOf" in kept:
        kept["anyOf"] = [_plain(each) for each in kept["anyOf"]]
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    return kept
