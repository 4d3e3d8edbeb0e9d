"""JSON Schemas of actions, as pydantic writes them: what a prompt says about them, and values from plain text."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

Schema = Mapping[str, Any]

OWN_FIELDS: Final = frozenset({"metadata"})
"""Fields of OpenEnv's base class `Action`: nothing that a policy decides."""

MAX_REFERENCES: Final = 6
"""References followed one after the other: a schema may refer to itself."""

MAX_LISTED: Final = 12
"""Fields or values named in a sentence."""

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}


def own_schema(schema: Schema) -> dict[str, Any]:
    """The schema of an action without OpenEnv's own fields."""
    own = dict(schema)
    if isinstance(fields := schema.get("properties"), dict):
        own["properties"] = {name: field for name, field in fields.items() if name not in OWN_FIELDS}
    return own


def schema_text(schema: Schema) -> str:
    """Its JSON, without pydantic's titles, which repeat the names."""
    return to_json(_untitled(schema)).decode()


def _untitled(value: Any) -> Any:
    """A property may be called `title`: that is not a string."""
    if isinstance(value, Mapping):
        return {
            name: _untitled(inner) for name, inner in value.items() if not (name == "title" and isinstance(inner, str))
        }
    return [_untitled(inner) for inner in value] if isinstance(value, list) else value


class FieldSchemas:
    """The fields of an action."""

    def __init__(self, schema: Schema) -> None:
        found = schema.get("properties")
        self.schemas: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
        self._definitions = schema.get("$defs")
        listed = schema.get("required")
        names = listed if isinstance(listed, list) else []
        self.required = [name for name in names if isinstance(name, str) and name in self.schemas]
        self.closed = schema.get("additionalProperties") is False

    @property
    def only_required(self) -> str | None:
        """The field that an action consists of, if it is one."""
        return self.required[0] if len(self.required) == 1 else None

    def value_of(self, field: str, text: str) -> Any:
        """A plain text as the field's value. Raises ValueError if it is none."""
        for variant in self._variants(self.schemas[field], MAX_REFERENCES):
            try:
                return _value(text, variant)
            except ValueError:
                continue
        raise ValueError(f"{text[:60]!r} is not the value of {field}")

    def in_words(self) -> str:
        """`number (integer), note (string, optional)`."""
        named = [name for name in self.schemas if name not in OWN_FIELDS]
        words = [self._field_in_words(name) for name in named[:MAX_LISTED]]
        return ", ".join([*words, f"and {len(named) - MAX_LISTED} more"] if len(named) > MAX_LISTED else words)

    def _field_in_words(self, name: str) -> str:
        kinds = dict.fromkeys(_in_words(each) for each in self._variants(self.schemas[name], MAX_REFERENCES))
        optional = [] if name in self.required else ["optional"]
        return f"{name} ({', '.join([' or '.join(kinds) or 'any', *optional])})"

    def _variants(self, schema: Any, references: int) -> Iterator[Schema]:
        """The alternatives that a schema consists of, with references replaced by what they refer to."""
        if not isinstance(schema, Mapping) or references == 0:
            return
        if isinstance(reference := schema.get("$ref"), str):
            known = self._definitions if isinstance(self._definitions, Mapping) else {}
            yield from self._variants(known.get(reference.rpartition("/")[2]), references - 1)
            return
        alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not isinstance(alternatives, list):
            yield schema
            return
        for each in alternatives[:MAX_LISTED]:
            yield from self._variants(each, references - 1)


def _in_words(schema: Schema) -> str:
    values = _allowed(schema)
    if values is None:
        return str(schema.get("type", "any"))
    shown = [to_json(value).decode() for value in values[:MAX_LISTED]]
    return "one of " + ", ".join([*shown, "…"] if len(values) > MAX_LISTED else shown)


def _allowed(schema: Schema) -> list[Any] | None:
    """The values of an enum or a constant."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _value(text: str, schema: Schema) -> Any:
    if (allowed := _allowed(schema)) is not None:
        return _one_of(allowed, text)
    match schema.get("type"):
        case "integer" if INTEGER.fullmatch(text):
            return int(text)
        case "number" if math.isfinite(float(text)):
            return float(text)
        case "boolean" if text.lower() in BOOLEANS:
            return BOOLEANS[text.lower()]
        case "string":
            return _unquoted(text)
        case "array" if isinstance(value := from_json(text), list):
            return value
        case None:
            return text
    raise ValueError(text)


def _one_of(allowed: list[Any], text: str) -> Any:
    for value in allowed:
        if text in (value, str(value)) or _unquoted(text) == value:
            return value
    raise ValueError(text)


def _unquoted(text: str) -> str:
    """A JSON string's text; any other text is itself."""
    if not text.startswith('"'):
        return text
    try:
        value = from_json(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text
