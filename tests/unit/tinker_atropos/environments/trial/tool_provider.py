"""A provider whose models call tools, or cannot."""

import json
from typing import Any

from tests.unit.tinker_atropos.environments.trial.provider import ScriptedProvider

ARGUMENTS = '{"expression": "40 + 2 é\\n"}'
NESTED = "[" * 100_000
CUT_OFF = '{"expression": "40 +'
NO_TOOLS = "No endpoints found that support tool use"


class ToolProvider(ScriptedProvider):
    """Each model calls the first tool that it is offered, and repeats what it is told.

    `calls` does it once, `calls twice` in parallel, `cut off` with half of the arguments, `nested` with too many
    brackets, `no ids` without an id; `no tools` refuses tools, and `ignores tools` does not see them.
    """

    def answer(self, path: str, request: dict[str, Any], key: str | None) -> tuple[int, bytes]:
        if request["model"] == "no tools" and request.get("tools"):
            self.requests.append(request)
            return 404, json.dumps({"error": {"message": NO_TOOLS}}).encode()
        return super().answer(path, request, key)

    def _completion(self, path: str, request: dict[str, Any], *, right: bool) -> dict[str, Any]:  # noqa: ARG002 -- all are
        last, model = request["messages"][-1], request["model"]
        ignores = model == "ignores tools" or not request.get("tools") or last["role"] == "tool"
        said = {"content": last["content"]} if ignores else {"content": None, "tool_calls": _calls(request, model)}
        reason = "stop" if ignores else "tool_calls"
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **said}}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


def _calls(request: dict[str, Any], model: str) -> list[dict[str, Any]]:
    name = request["tools"][0]["function"]["name"]
    function = {"name": name, "arguments": {"cut off": CUT_OFF, "nested": NESTED}.get(model, ARGUMENTS)}
    ids: dict[str, list[str | None]] = {"calls twice": ["provider-0", "provider-1"], "no ids": [None]}
    return [{"id": each, "type": "function", "function": function} for each in ids.get(model, ["provider-0"])]
