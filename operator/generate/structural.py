"""From pydantic models to the structural schemas of a CustomResourceDefinition (apiextensions.k8s.io/v1).

Structural schemas have no `$ref`, no `type: null` and no free `anyOf`, and every node has a type or keeps unknown
fields. Custom code, because the libraries considered leave CEL rules, list maps and nullable defaults to glue code.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from rl_operator.api.settings.size_limits import MAX_ENTRIES, MAX_FIELDS, MAX_TEXT

Schema = dict[str, Any]

_KEPT: Final = (
    "description",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
)
_ANYTHING: Final = {
    "x-kubernetes-preserve-unknown-fields": True,
    "nullable": True,
    "maxLength": MAX_TEXT,
    "maxItems": MAX_ENTRIES,
    "maxProperties": MAX_ENTRIES,
}
"""Any JSON, and what is in it: bounds further down cost the API server 20 µs per value, also of a list that is refused.
What is left is measured by the policy and by the operator.
"""

_LEAST_BOUNDS: Final = {
    "string": {"maxLength": 32_768},
    "array": {"maxItems": 1_000},
    "object": {"maxProperties": 1_000},
}
"""For a status: its author is the operator, whose sentences are much shorter."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model's wire form: no titles, and defaults only where they add information."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}))


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    node = _resolve(node, definitions)
    alternatives = [_resolve(choice, definitions) for choice in node.get("anyOf", ())]
    if not alternatives:
        return _typed(node, definitions) | _described(node) | _default(node)
    present = [choice for choice in alternatives if choice.get("type") != "null"]
    converted = (
        _int_or_string(present) if len(present) > 1 else _typed(present[0], definitions) | _described(present[0])
    )
    nullable = len(present) < len(alternatives) and node.get("default") is not None
    return converted | _described(node) | _default(node) | ({"nullable": True} if nullable else {})


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a `$ref`; its siblings (a field's own description) override the model's."""
    if "$ref" not in node:
        return node
    target = definitions[node["$ref"].rsplit("/", 1)[1]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _typed(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    match node.get("type"):
        case "object" if "properties" in node:
            properties = {name: _convert(child, definitions) for name, child in node["properties"].items()}
            required = {"required": node["required"]} if node.get("required") else {}
            return {"type": "object", "properties": properties, **required}
        case "object" if isinstance(node.get("additionalProperties"), dict):
            return {"type": "object", "additionalProperties": _convert(node["additionalProperties"], definitions)}
        case "object":
            return {"type": "object", "maxProperties": MAX_FIELDS, "additionalProperties": dict(_ANYTHING)}
        case "array":
            return {"type": "array", "items": _convert(node["items"], definitions)}
        case "integer":
            return {"type": "integer", "format": "int64"}
        case "string" | "number" | "boolean" as simple:
            return {"type": simple}
    return {"type": "string", "maxLength": len(node["const"])} if "const" in node else dict(_ANYTHING)


def bounded(schema: Schema) -> Schema:
    """The schema with a bound for each text, list and mapping that has none of its own."""
    result = {**_LEAST_BOUNDS.get("enum" if "enum" in schema else schema.get("type", ""), {}), **schema}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            result[key] = bounded(schema[key])
    if "properties" in schema:
        result["properties"] = {name: bounded(child) for name, child in schema["properties"].items()}
        result.pop("maxProperties", None)
    return result


def _int_or_string(choices: list[Mapping[str, Any]]) -> Schema:
    types = {choice.get("type") for choice in choices}
    if types != {"integer", "string"}:
        raise TypeError(f"a structural schema cannot say {' or '.join(sorted(map(str, types)))}")
    lengths = {key: choice[key] for choice in choices for key in ("maxLength",) if key in choice}
    return {"x-kubernetes-int-or-string": True, **lengths}


def _described(node: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}


def _default(node: Mapping[str, Any]) -> Schema:
    """Readers assume empty defaults anyway; written into every object they would only be noise."""
    return {"default": node["default"]} if node.get("default") else {}
