"""A tool: its name, what it takes and what it does. The table of them (`toolset.TOOLS`) is behind every interface.

Also the JSON schema of a tool's arguments, as small as models can use it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

from rl_operator.errors import RefusedError
from rl_operator.tools.tool_context import ToolContext

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
    def _as_meant(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, each in given.items() if (value := cls._read(name, each)) is not _LEFT_OUT}

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        field = cls.model_fields.get(name)
        if field is None or field.annotation is Any:
            return value
        if value is None:
            return _LEFT_OUT
        if not isinstance(value, str) or str in _types_of(field.annotation):
            return value
        try:
            spelled = json.loads(value) if value.lstrip()[:1] in ("[", "{") else value
        except (ValueError, RecursionError):
            return value
        return spelled


_LEFT_OUT: Final = object()


def _types_of(annotation: Any) -> tuple[Any, ...]:
    """`str | None` is str or None; `tuple[str, ...] | None` is neither."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


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
    """A refusal with helpful details besides its sentence: `available`, `locked_value`, `refusals` …"""

    def __init__(self, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.details = details


class NotFoundError(ToolRefusedError):
    """The named object does not exist."""


def input_schema(tool: Tool) -> dict[str, Any]:
    """JSON Schema 2020-12. An optional parameter may be left out; that null has the same effect is not stated."""
    schema: dict[str, Any] = _plain(tool.arguments.model_json_schema())
    schema.pop("description", None)  # the tool has its own
    return {"type": "object", "properties": {}, **schema}


def _plain(schema: Any) -> Any:
    """Without the titles that pydantic derives from names, and without null among the types for a default of null."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: value for name, value in schema.items() if not (name == "title" and isinstance(value, str))}
    if kept.get("default", ...) is None:
        del kept["default"]
        types = [each for each in kept.pop("anyOf", []) if each != {"type": "null"}]
        kept |= types[0] if len(types) == 1 else {"anyOf": types} if types else {}
    return {name: _properties(value) if name == "properties" else _plain(value) for name, value in kept.items()}


def _properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """By name, since `title` may be one."""
    return {name: _plain(schema) for name, schema in properties.items()}
