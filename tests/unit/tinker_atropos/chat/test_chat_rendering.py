"""Chat templates like those of current models, with tools, on the bundled tokenizer's vocabulary."""

import shutil
from pathlib import Path

import pytest

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.chat.chat_rendering import chat_renderer, template_messages
from tinker_atropos.chat.tokenizer import ChatError, Tokenizer
from tinker_atropos.errors import ConfigError

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


def tokenizer_with(folder: Path, template: str) -> Tokenizer:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(bundled_model_folder()) / name, folder)
    (folder / "chat_template.jinja").write_text(template)
    return Tokenizer(str(folder))


@pytest.fixture(scope="module")
def tool_tokenizer(tmp_path_factory) -> Tokenizer:
    return tokenizer_with(tmp_path_factory.mktemp("tokenizer"), TEMPLATE)


def render(tokenizer: Tokenizer, *args, **kwargs) -> str:
    return tokenizer.decode(chat_renderer(tokenizer, "bundled").ids(*args, **kwargs), skip_special_tokens=False)


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


def test_what_a_template_leaves_out_is_written_in_the_models_tool_format(tokenizer) -> None:
    text = render(tokenizer, CONVERSATION, TOOLS)
    assert text.startswith("<|im_start|>system\nYou can call these functions:\n")
    assert '{"name": "add", "parameters": {"type": "object"}}' in text
    assert '<tool_call>\n{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call><|im_end|>' in text
    assert text.endswith(
        "<|im_start|>user\n1 + 2<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "add", "arguments": {"a":1,"b":[2]}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n3<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_without_results_of_tools_shows_them_as_a_users(tmp_path) -> None:
    template = (
        "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
        "[{{ message.role }}]{{ message.content }}{% endfor %}"
    )
    text = render(tokenizer_with(tmp_path, template), [*CONVERSATION, {"role": "user", "content": "so?"}])
    assert text.endswith("</tool_call>[user]<tool_response>\n3\n</tool_response>[user]so?")


def test_a_system_message_keeps_its_text_before_the_tools(tokenizer) -> None:
    text = render(tokenizer, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}], TOOLS)
    assert text.startswith("<|im_start|>system\nBe brief.\n\nYou can call")


def test_the_format_of_a_models_family_or_the_chosen_one(tokenizer) -> None:
    assert chat_renderer(tokenizer, "Qwen/Qwen3-Coder-30B-A3B-Instruct").tool_format.name == "qwen3_coder"
    assert chat_renderer(tokenizer, "Qwen/Qwen3-8B", "mistral").tool_format.name == "mistral"
    with pytest.raises(ConfigError, match=r"env.tool_call_parser is 'xml'; it must be one of hermes, qwen, "):
        chat_renderer(tokenizer, "Qwen/Qwen3-8B", "xml")


def test_a_templates_refusal_is_reported_in_its_own_words(tool_tokenizer) -> None:
    with pytest.raises(ChatError, match="roles must be system, user, assistant or tool"):
        chat_renderer(tool_tokenizer, "bundled").ids([{"role": "developer", "content": "x"}])


MALFORMED = {
    "no role": ({"content": "x"}, "messages.0.role is None"),
    "an image": ({"role": "user", "content": [{"type": "image_url"}]}, "messages.0.content.0 is not a text part"),
    "a number": ({"role": "user", "content": 4}, "messages.0.content.0 is not a text part"),
    "a call without a function": (
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        "messages.0.tool_calls.0.function is missing",
    ),
    "arguments that are not JSON": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{a"}}]},
        "messages.0.tool_calls.0.function.arguments is not JSON",
    ),
}


@pytest.mark.parametrize(("message", "sentence"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_refused_by_name(message, sentence) -> None:
    with pytest.raises(ChatError, match=sentence):
        template_messages([message])
