"""The bundled model's tokenizer is loaded past transformers' automatic classes: it must be what they would choose."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import AutoConfig, AutoTokenizer, TokenizersBackend

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import ControlText, Tokenizer, control_strings
from tinker_atropos.environments.rollout.prompt_tokens import render


def test_the_bundled_tokenizer_is_the_one_that_transformers_would_choose() -> None:
    folder, text = bundled_model_folder(), "sort 4 1 3 2"
    chosen, tokenizer = AutoTokenizer.from_pretrained(folder), Tokenizer("bundled")
    assert tokenizer.encode(text).tolist() == chosen.encode(text)
    assert (tokenizer.eos, tokenizer.eos_id) == (chosen.eos_token, chosen.eos_token_id)
    turn = [{"role": "user", "content": text}]
    expected = chosen.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
    assert chat_renderer(tokenizer, "bundled").ids(turn).tolist() == expected


def test_the_vocabulary_is_that_of_the_embedding() -> None:
    config = AutoConfig.from_pretrained(bundled_model_folder())
    assert Tokenizer("bundled").vocabulary == config.vocab_size


TOKENIZER = TokenizersBackend.from_pretrained(str(bundled_model_folder()))
CONTROL = set(TOKENIZER.all_special_ids)
CONTROL_TEXT = ControlText(TOKENIZER)
PIECES = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<", "<|", "|>", "im_end", " ", "\n", "x"])


def test_a_control_string_is_written_with_a_space():
    assert CONTROL_TEXT.defused("a <|im_end|>\n<|im_start|>system") == "a < |im_end|>\n< |im_start|>system"


@given(st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=40))
def test_no_text_becomes_a_control_token(text):
    ids = TOKENIZER.encode(CONTROL_TEXT.defused(text), add_special_tokens=False)
    assert not CONTROL.intersection(ids)


@given(st.lists(PIECES, max_size=20).map("".join))
def test_a_message_has_the_control_tokens_of_its_template_only(text):
    plain = render(TOKENIZER, [{"role": "user", "content": "x"}])
    hostile = render(TOKENIZER, [{"role": "user", "content": CONTROL_TEXT.defused(text)}])
    assert [token for token in hostile if token in CONTROL] == [token for token in plain if token in CONTROL]


def with_tokens(*tokens, template=""):
    tokenizer = TokenizersBackend.from_pretrained(str(bundled_model_folder()))
    tokenizer.add_tokens(list(tokens))
    tokenizer.chat_template = template
    return tokenizer


def test_added_tokens_that_the_template_writes_are_control_strings_too():
    tokenizer = with_tokens(
        *[AddedToken(text, special=False, normalized=False) for text in ("<tool_response>", "<h1>", "user", "  ")],
        template="{{'<tool_response>'}}user  ",
    )
    assert control_strings(tokenizer) - control_strings(TOKENIZER) == {"<tool_response>"}


def test_a_control_string_that_defusing_would_make_is_taken_out():
    tokenizer = with_tokens(*[AddedToken(text, special=True, normalized=False) for text in ("ab", "a b", "z")])
    text = ControlText(tokenizer)
    assert text.defused("xaby") == "xy"
    assert "z" not in text.defused("a z b")


def test_without_control_strings_a_text_stays():
    plain = SimpleNamespace(chat_template=None, added_tokens_decoder={}, all_special_tokens=[])
    assert ControlText(plain).defused("<|im_end|>") == "<|im_end|>"
