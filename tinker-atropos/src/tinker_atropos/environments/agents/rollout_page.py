"""A page of the rollouts of a file of groups: one JSON object a line, with `scores`, and maybe `messages` and `masks`.

Whatever a model or a tool wrote is escaped: the page has no scripts, and its policy allows none.
"""

import json
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

TEMPLATE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; --red: light-dark(#c22, #f77) }
  body { max-width: 60rem; margin: 1rem auto; padding: 0 1rem; overflow-wrap: anywhere }
  summary { cursor: pointer; padding: .25rem 0 } details details { margin-left: 1.2rem } small b { color: var(--red) }
  .message { border-left: .25rem solid #8886; padding: .1rem .8rem; margin: .6rem 0 } .system { border-color: #b70 }
  .assistant { border-color: #47d } .tool { border-color: #2a5 } .error { border-color: var(--red); background: #d331 }
  pre { white-space: pre-wrap; margin: .2rem 0; max-height: 22rem; overflow: auto; font-size: .85rem }
  .call { background: #8882; padding: .3rem .6rem } .reward { border-radius: .3rem; padding: 0 .35rem }
</style>
{% macro reward(value) %}<span class="reward" style="background: hsl({{ hue(value) }} 75% 50% / .35)">
{{- "%.3g" | format(value) }}</span>{% endmacro %}
{% macro count(number, word) %}{{ number }} {{ word }}{% if number != 1 %}s{% endif %}{% endmacro %}
<h1>{{ title }}</h1>
<p>{{ count(groups | length, "group") }}, {{ count(rollouts | length, "rollout") }}
{%- if rollouts %}, mean reward {{ "%.3f" | format(mean) }}, {{ count(rollouts | sum("calls"), "tool call") }},
{{ rollouts | sum("errors") }} went wrong{% endif %}</p>
{% for group in groups %}
<details{% if loop.first %} open{% endif %}>
<summary>{{ loop.index }} {% for rollout in group %}{{ reward(rollout.score) }} {% endfor %}
{{ (group[0].question if group else "") | truncate(90) }}</summary>
{% for rollout in group %}
<details>
<summary>{{ reward(rollout.score) }} <small>{{ count(rollout.turns, "turn") }}, {{ count(rollout.calls, "tool call") }}
{%- if rollout.errors %}, <b>{{ rollout.errors }} went wrong</b>{% endif %}
{%- if rollout.tokens %}, {{ count(rollout.tokens, "sampled token") }}{% endif %}</small></summary>
{% for message in rollout.messages %}
<div class="message {{ message.role }}{% if message.error %} error{% endif %}"><small>{{ message.title }}</small>
{% if message.text %}<pre>{{ message.text }}</pre>{% endif %}
{% for name, arguments in message.calls %}<pre class="call"><strong>{{ name }}</strong>
{{ arguments }}</pre>{% endfor %}</div>
{% endfor %}</details>
{% endfor %}</details>
{% endfor %}
</html>
"""
ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
NOT_SAMPLED: Final = -100  # in masks, as Atropos writes them
HIDDEN: Final = (*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F))
VISIBLE: Final = {code: f"<U+{code:04X}>" for code in (*HIDDEN, *range(0x2066, 0x206A))}
"""For control characters, which could change how others are seen: of terminals and of the direction of a text."""


def write_page(groups_file: Path) -> Path:
    """Beside the file, with the ending `.html`. Raises OSError."""
    groups = [json.loads(line) for line in groups_file.read_text(encoding="utf-8").splitlines() if line.strip()]
    page = groups_file.with_suffix(".html")
    page.write_text(rollout_page(groups_file.stem, groups), encoding="utf-8", errors="replace")
    return page


def rollout_page(title: str, groups: list[dict[str, Any]]) -> str:
    shown = [_rollouts(group) for group in groups]
    rollouts = [rollout for group in shown for rollout in group]
    scores = [rollout["score"] for rollout in rollouts]
    low, high = min([0.0, *scores]), max([0.0, *scores])
    template = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE)
    template.globals["hue"] = lambda score: round(120 * (score - low) / ((high - low) or 1))  # from red to green
    return template.render(title=title, groups=shown, rollouts=rollouts, mean=sum(scores) / max(1, len(scores)))


def _rollouts(group: dict[str, Any]) -> list[dict[str, Any]]:
    """A rollout of several sequences is shown once: its conversation is the same in each of them."""
    count = len(group["scores"])
    conversations, masks = (group.get(name) or [[]] * count for name in ("messages", "masks"))
    owners = (group.get("group_overrides") or {}).get("rollouts") or range(count)
    found: dict[int, dict[str, Any]] = {}
    for owner, score, messages, mask in zip(owners, group["scores"], conversations, masks, strict=True):
        rollout = found.setdefault(owner, {"score": score, "tokens": 0, **_conversation(messages)})
        rollout["tokens"] += sum(each != NOT_SAMPLED for each in mask)
    return list(found.values())


def _conversation(messages: list[dict[str, Any]]) -> dict[str, Any]:
    shown = [_shown(message) for message in messages]
    turns = [each for each in shown if each["role"] == "assistant"]
    for turn, each in enumerate(turns, 1):
        each["title"] = f"assistant, turn {turn}"
    asked = (each["text"] for each in shown if each["role"] == "user")
    calls, errors = sum(len(each["calls"]) for each in turns), sum(each["error"] for each in shown)
    return {"messages": shown, "turns": len(turns), "calls": calls, "errors": errors, "question": next(asked, "")}


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    role = next((each for each in ROLES if each == message.get("role")), "other")
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    calls = [(_readable(each.get("name")), _readable(each.get("arguments"))) for each in functions]
    text, title = _readable(message.get("content"), role == "tool"), f"{role} {_readable(message.get('name'))}"
    return {"role": role, "title": title, "text": text, "calls": calls, "error": _is_error(role, message)}


def _is_error(role: object, message: dict[str, object]) -> bool:
    """Whether it tells the agent of a call that went wrong, or of a command that failed."""
    told = _parsed(message.get("content"))
    if role == "tool" and isinstance(told, dict):
        return bool(told.get("error") or told.get("exit_code"))
    return str(told).startswith("Error: " if role == "tool" else "Error: a call could not be read: ")


def _readable(content: object, is_object: bool = True) -> str:
    """Objects, such as arguments and results, as lines of `name: value`, with the line breaks that values have."""
    parsed = _parsed(content) if is_object else None
    if isinstance(parsed, dict):
        values = {name: _as_text(each) for name, each in parsed.items()}
        content = "\n".join(f"{name}:{chr(10) if chr(10) in each else ' '}{each}" for name, each in values.items())
    return ("" if content is None else _as_text(content)).translate(VISIBLE)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parsed(content: object) -> object:
    try:
        return json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError):  # of a text that is not JSON, or is nested without end
        return content
