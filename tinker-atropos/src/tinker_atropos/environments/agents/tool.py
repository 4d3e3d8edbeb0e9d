"""A tool: what a model is told of it, and the function that is called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
"""The types of JSON Schema, as JSON is read."""


class ToolArgumentsError(ValueError):
    """A call that does not fit its tool; the message is for the agent."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters` is the JSON Schema of an object. `function` takes them as keyword arguments, and returns what the
    agent is told: a text, or something that becomes JSON. It may be a coroutine function; any other runs in a thread.

    With `in_sandbox`, its first argument is the sandbox of the rollout.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    in_sandbox: bool = False

    @property
    def schema(self) -> Json:
        """In OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises ToolArgumentsError for names that are missing or unknown, and values of another type."""
        properties: Mapping[str, Any] = self.parameters.get("properties") or {}
        missing = [name for name in self.parameters.get("required") or () if name not in arguments]
        unknown = [name for name in arguments if name not in properties]
        if missing or unknown:
            faults = [*(f"{name} is missing" for name in missing), *(f"there is no {name}" for name in unknown)]
            known = ", ".join(properties) or "none"
            raise ToolArgumentsError(f"{self.name}: {'; '.join(faults)} (its arguments: {known})")
        for name, value in arguments.items():
            wanted = properties[name].get("type")
            if isinstance(wanted, str) and not _is(value, wanted):
                raise ToolArgumentsError(f"{self.name}: {name} is {value!r}; it must be of the type {wanted}")


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted in ("integer", "number"):
        return False
    return isinstance(value, TYPES.get(wanted, object))
