from hypothesis import given
from hypothesis import strategies as st
from transformers import TokenizersBackend

from tinker_atropos.bundled import bundled_model_folder
from tinker_atropos.environments.adapters.openenv.openenv_text import (
    NOTHING,
    PromptText,
    observation_text,
    tool_text,
)

TOKENIZER = TokenizersBackend.from_pretrained(str(bundled_model_folder()))
CONTROL = set(TOKENIZER.all_special_ids)
TEXT = PromptText(TOKENIZER)
PIECES = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<", "<|", "|>", "im_end", " ", "\n", "x"])


@given(st.text(max_size=200), st.integers(1, 100))
def test_texts_are_cut(text, limit):
    harmless = text.replace("<", "(")
    note = f"\n[{len(text) - limit} more characters]" if len(text) > limit else ""
    assert TEXT.untrusted(harmless, limit) == harmless[:limit] + note


def test_observations():
    assert observation_text({"hint": "Go.", "metadata": {}}) == "Go."
    assert observation_text({"hint": "", "metadata": {}}) == '{"hint":""}'
    assert observation_text({"hint": "é", "left": []}) == '{"hint":"é","left":[]}'
    assert observation_text({"metadata": {"task": 1}}) == '{"metadata":{"task":1}}'
    assert observation_text({"metadata": {}}) == NOTHING
    assert observation_text({}) == NOTHING


def test_results_of_tools():
    assert tool_text({"hint": "Go."}) == "Go."
    content = [{"type": "text", "text": "a"}, {"type": "image", "data": ""}, {"type": "text", "text": "b"}]
    assert tool_text({"tool_name": "t", "result": {"content": content}, "error": None}) == "a\nb"
    assert tool_text({"tool_name": "t", "result": {"content": "x"}}) == '{"content":"x"}'
    assert tool_text({"tool_name": "t", "result": 5}) == "5"
    assert tool_text({"tool_name": "t"}) == "null"
    assert tool_text({"tool_name": "t", "error": {"message": "no"}}) == "The tool failed: no"
    assert tool_text({"tool_name": "t", "error": "no"}) == "The tool failed: no"
