"""The JSON schema of what a tool takes, as small as models read it."""

from collections.abc import Mapping
from typing import Any

from rl_operator.tools.tool import Tool


def input_schema(tool: Tool) -> dict[str, Any]:
    """JSON Schema 2020-12. An optional parameter may be left out; that null means the same is not said."""
    schema: dict[str, Any] = _plain(tool.arguments.model_json_schema())
    schema.pop("description", None)  # the tool's own says it
    return {"type": "object", "properties": {}, **schema}


def _plain(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, and without null among the types of a default of null."""
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
    """By name, and `title` may be one."""
    return {name: _plain(schema) for name, schema in properties.items()}
