"""The policy's messages as programs got them, and what the policy had really written.

A program sends an answer back as it understood it: with calls as JSON, without special tokens. What the policy wrote
cannot be rebuilt from that, so that it is remembered. A message that says anything else is not the policy's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class SentMessages:
    _written: dict[Key, str] = field(default_factory=dict)

    def add(self, message: Mapping[str, Any], written: str) -> None:
        """The last one counts, where several were sent alike."""
        self._written[_key(message)] = written

    def as_written(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages, with the policy's in its own words."""
        return [self._restored(message) for message in messages]

    def _restored(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message.get("role") != "assistant":
            return dict(message)
        try:
            written = self._written.get(_key(message))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # refused where chats are rendered
            written = None
        return dict(message) if written is None else {"role": "assistant", "content": written}


def _key(message: Mapping[str, Any]) -> Key:
    """Equal for what says the same: programs write JSON in ways of their own, and send a text in parts."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return content or "", tuple((call["name"], _canonical(call["arguments"])) for call in calls)


def _canonical(arguments: Any) -> str:
    return json.dumps(json.loads(arguments or "{}") if isinstance(arguments, str) else arguments, sort_keys=True)
