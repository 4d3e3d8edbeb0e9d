"""Chat templates like those of current models, with tools, on the bundled tokenizer's vocabulary."""

import shutil
from pathlib import Path

import pytest

from tinker_atropos.bundled import bundled_model_folder
from tinker_atropos.trainer.inference.tokenizer import ChatError, Tokenizer, template_messages

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'developer' %}{{ raise_exception('roles must be system, user, assistant or tool') }}{% endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": [2]}'}}
CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "1 + "}, {"type": "text", "text": "2"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "3"},
]


@pytest.fixture(scope="module")
def tool_tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(bundled_model_folder()) / name, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return Tokenizer(str(folder))


def render(tokenizer: Tokenizer, *args, **kwargs) -> str:
    return tokenizer.decode(tokenizer.render_chat(*args, **kwargs), skip_special_tokens=False)


def test_tool_calls_and_results_are_rendered_once_and_as_json(tool_tokenizer) -> None:
    assert render(tool_tokenizer, CONVERSATION, TOOLS) == (
        '<|im_start|>system\n{"name": "add", "parameters": {"type": "object"}}\n<|im_end|>\n'
        "<|im_start|>user\n1 + 2<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": [2]}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\n3<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_template_arguments_are_passed_on(tool_tokenizer) -> None:
    message = [{"role": "user", "content": "x"}]
    assert render(tool_tokenizer, message, (), {"enable_thinking": False}).endswith("assistant\n<think></think>")
    assert render(tool_tokenizer, message).endswith("assistant\n")


def test_fields_a_template_would_ignore_are_refused(tokenizer) -> None:
    with pytest.raises(ChatError, match=r"^tools: "):
        tokenizer.render_chat([{"role": "user", "content": "x"}], TOOLS)
    with pytest.raises(ChatError, match=r"^tool_calls: "):
        tokenizer.render_chat(CONVERSATION)


def test_a_templates_refusal_is_reported_in_its_own_words(tool_tokenizer) -> None:
    with pytest.raises(ChatError, match="roles must be system, user, assistant or tool"):
        tool_tokenizer.render_chat([{"role": "developer", "content": "x"}])


MALFORMED = {
    "no role": ({"content": "x"}, "messages.0.role is None"),
    "an image": ({"role": "user", "content": [{"type": "image_url"}]}, "messages.0.content.0 is not a text part"),
    "a number": ({"role": "user", "content": 4}, "messages.0.content.0 is not a text part"),
    "a call without a function": (
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        "messages.0.tool_calls.0.function is missing",
    ),
    "arguments that are no JSON": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{a"}}]},
        "messages.0.tool_calls.0.function.arguments is not JSON",
    ),
}


@pytest.mark.parametrize(("message", "sentence"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_refused_by_name(message, sentence) -> None:
    with pytest.raises(ChatError, match=sentence):
        template_messages([message])
