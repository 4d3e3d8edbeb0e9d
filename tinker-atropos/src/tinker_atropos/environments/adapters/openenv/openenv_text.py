"""A server's texts in a prompt: limited in length, and without a model's control tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from tinker_atropos.chat.control_text import ControlText

NOTHING: Final = "(nothing was observed)"


class PromptText:
    """Makes untrusted texts fit for one tokenizer's prompts."""

    def __init__(self, tokenizer: Any) -> None:
        self._control = ControlText(tokenizer)

    def untrusted(self, text: str, limit: int) -> str:
        """At most `limit` characters and a note on what was left out."""
        left_out = len(text) - limit
        shown = f"{text[:limit]}\n[{left_out} more characters]" if left_out > 0 else text
        return self._control.defused(shown)


def observation_text(observation: Mapping[str, Any]) -> str:
    """The only text of an observation, or its JSON. What is empty of OpenEnv's own fields is left out."""
    shown = {name: value for name, value in observation.items() if name != "metadata" or value}
    match list(shown.values()):
        case []:
            return NOTHING
        case [str(text)] if text.strip():
            return text
        case _:
            return to_json(shown).decode()


def tool_text(observation: Mapping[str, Any]) -> str:
    """What a tool returned, as an MCP client shows it (`CallToolObservation` of `mcp_types.py`)."""
    if "tool_name" not in observation:
        return observation_text(observation)
    error, result = observation.get("error"), observation.get("result")
    if error:
        return f"The tool failed: {error.get('message') if isinstance(error, Mapping) else error}"
    content = result.get("content") if isinstance(result, Mapping) else None
    texts = _texts(content) if isinstance(content, Sequence) else []
    return "\n".join(texts) or to_json(result).decode()


def _texts(content: Sequence[Any]) -> list[str]:
    return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
