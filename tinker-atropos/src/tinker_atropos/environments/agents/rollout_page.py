"""A page of the rollouts of a file of groups: one JSON object a line, with `messages` and `scores`.

Whatever a model or a tool wrote is escaped: the page has no scripts, and its policy allows none.
"""

import json
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

TEMPLATE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{{ title }}</title>
<style>
  :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
  body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  summary { cursor: pointer; padding: .3rem 0 }
  .message { border-left: .25rem solid #8886; padding: .1rem .8rem; margin: .6rem 0 }
  .assistant { border-color: #36c } .tool { border-color: #283 } .system { border-color: #a60 }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0 }
  small { color: #777 }
</style>
<h1>{{ title }}</h1>
<p>{{ groups | length }} groups, {{ rollouts }} rollouts{% if rollouts %}, mean reward {{ "%.3f" | format(mean) }}
{% endif %}</p>
{% for group in groups %}
<details{% if loop.first %} open{% endif %}>
<summary>Group {{ loop.index }}: rewards {{ group.rewards }}</summary>
{% for score, messages in group.rollouts %}
<details>
<summary>reward {{ "%.3f" | format(score) }} <small>{{ messages | length }} messages</small></summary>
{% for message in messages %}
<div class="message {{ message.role }}"><small>{{ message.role }}{% if message.name %} {{ message.name }}{% endif %}
</small>
{% if message.content %}<pre>{{ message.content }}</pre>{% endif %}
{% for call in message.tool_calls or [] %}
<pre>call: {{ call.function.name }}({{ call.function.arguments }})</pre>
{% endfor %}</div>
{% endfor %}</details>
{% endfor %}</details>
{% endfor %}
</html>
"""
ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


def write_page(groups_file: Path) -> Path:
    """Beside the file, with the ending `.html`. Raises OSError."""
    groups = [json.loads(line) for line in groups_file.read_text(encoding="utf-8").splitlines() if line.strip()]
    page = groups_file.with_suffix(".html")
    page.write_text(rollout_page(groups_file.stem, groups), encoding="utf-8", errors="replace")
    return page


def rollout_page(title: str, groups: list[dict[str, Any]]) -> str:
    scores = [score for group in groups for score in group["scores"]]
    shown = [
        {
            "rewards": ", ".join(f"{score:g}" for score in group["scores"]),
            "rollouts": [(score, list(map(_shown, messages))) for score, messages in _pairs(group)],
        }
        for group in groups
    ]
    template = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE)
    mean = sum(scores) / len(scores) if scores else 0.0
    return template.render(title=title, groups=shown, rollouts=len(scores), mean=mean)


def _pairs(group: dict[str, Any]) -> list[tuple[float, list[dict[str, Any]]]]:
    messages = group.get("messages") or [[]] * len(group["scores"])
    return list(zip(group["scores"], messages, strict=True))


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "role": message.get("role") if message.get("role") in ROLES else "other"}
