"""Ids of growing prompts are those of the chat template: with random tokenizers, templates and conversations."""

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, TokenizersBackend

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.rollout.prompt_tokens import PromptTokens, render

ALPHABET = "<e>s ab\n▁E"
MERGES = [("b", "<"), ("a", "b"), ("ab", "a"), ("▁", "a"), ("<", "e"), ("s", ">"), ("\n", "\n"), (">", "a")]
PIECES = [*ALPHABET, *("".join(merge) for merge in MERGES)]

NORMALIZERS = {
    "none": None,
    "lower case": normalizers.Lowercase(),
    "strip": normalizers.Strip(),
    "a space before": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
}
PRE_TOKENIZERS = {
    "none": None,
    "spaces": pre_tokenizers.WhitespaceSplit(),
    "a mark before the text": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "a mark before each part": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "punctuation": pre_tokenizers.Punctuation(),
}
"""`first` is what depends on where in a text a part is."""

added_tokens = st.lists(
    st.builds(
        AddedToken,
        st.sampled_from(["<e>", "<s>", "e>", "<", "b<", "b<e>", "<e><s>", ">", "<e>a", " <e>", "ab", "ss", "<E>"]),
        lstrip=st.booleans(),
        rstrip=st.booleans(),
        single_word=st.booleans(),
        normalized=st.booleans(),
        special=st.booleans(),
    ),
    max_size=4,
)
ordinary = st.just([AddedToken(text, normalized=False, special=True) for text in ("<e>", "<s>")])
contents = st.text("<e>s ab\n", max_size=8) | st.sampled_from(["<e>", "a<e>", "<s>b", " <e> ", "b<e"])
turns = st.lists(contents, min_size=1, max_size=6)


def toy(tokens: list[AddedToken], template: str, **settings: Any) -> TokenizersBackend:
    backend = Tokenizer(models.BPE({piece: number for number, piece in enumerate(PIECES)}, MERGES))
    for name in ("normalizer", "pre_tokenizer"):
        if (part := settings.pop(name, None)) is not None:
            setattr(backend, name, part)
    backend.add_special_tokens([token for token in tokens if token.special])
    backend.add_tokens([token for token in tokens if not token.special])
    return TokenizersBackend(tokenizer_object=backend, chat_template=template, **settings)


def turns_of(opening: str, content: str, closing: str) -> str:
    return f"{{% for message in messages %}}{opening}{{{{ {content} }}}}{closing}{{% endfor %}}{opening}"


tokenizers = st.builds(
    toy,
    ordinary | added_tokens,
    st.builds(
        turns_of,
        st.sampled_from(["<s>", "<s>\n", "b", "", " <e>"]),
        st.sampled_from(["message.content", "message.content | trim", "'' if loop.index == 2 else 'a'"]),
        st.sampled_from(["<e>", "<e>\n", ""]),
    ),
    normalizer=st.sampled_from(list(NORMALIZERS.values())),
    pre_tokenizer=st.sampled_from(list(PRE_TOKENIZERS.values())),
    split_special_tokens=st.sampled_from([False, False, True]),
)


def assert_ids_are_the_templates(tokenizer: Any, contents: list[str]) -> PromptTokens:
    prompts, messages = PromptTokens(tokenizer), []
    for number, content in enumerate(contents):
        messages.append({"role": ("user", "assistant")[number % 2], "content": content})
        assert prompts.ids(messages, prompts.text(messages)) == render(tokenizer, messages)
    return prompts


@given(tokenizers, turns)
def test_of_any_tokenizer(tokenizer, contents) -> None:
    prompts = assert_ids_are_the_templates(tokenizer, contents)
    event("reused" if prompts._ids_before else "whole")


def special(text: str, **how: bool) -> AddedToken:
    return AddedToken(text, **{"normalized": False, "special": True, **how})


END = special("<e>")
PLAIN = turns_of("", "message.content", "<e>")
ONLY_THE_LAST = turns_of("", "message.content if loop.last else 's'", "<e>")
UNFIT = {
    "looked for in normalized text": (
        toy([special("<e>", normalized=True)], PLAIN, normalizer=NORMALIZERS["strip"]),
        "a ",
    ),
    "takes the spaces before it": (toy([special("<e>", lstrip=True)], PLAIN), "a "),
    "not found after a letter": (toy([special("<e>", single_word=True)], PLAIN), "b"),
    "its beginning is taken": (toy([END, special("b<")], PLAIN), "b"),
    "a longer token is found": (toy([END, special("b<e>")], PLAIN), "b"),
    "what was before it changes": (toy([END], ONLY_THE_LAST), "b"),
}


@pytest.mark.parametrize(("tokenizer", "content"), UNFIT.values(), ids=UNFIT)
def test_where_a_token_does_not_cut(tokenizer, content) -> None:
    assert_ids_are_the_templates(tokenizer, [" <e>", content, content, "s"])
    assert_ids_are_the_templates(tokenizer, ["s", content, content, content])


@pytest.fixture(scope="module")
def bundled() -> Any:
    return AutoTokenizer.from_pretrained(str(bundled_model_folder()))


@given(
    contents=st.lists(st.text(max_size=20) | st.sampled_from(["<|im_end|>", "4 1 <|im_end|", "\n\n", " é"])).filter(len)
)
def test_of_the_bundled_tokenizer(bundled, contents) -> None:
    assert_ids_are_the_templates(bundled, contents)


def test_what_was_said_before_is_not_tokenized_again(bundled, monkeypatch) -> None:
    seen: list[str] = []
    encode = bundled.encode
    monkeypatch.setattr(bundled, "encode", lambda text, **kwargs: seen.append(text) or encode(text, **kwargs))
    assert_ids_are_the_templates(bundled, ["a" * 100, "b" * 100, "c" * 100, "d" * 100])
    assert [sum(text.count(letter) for text in seen) // 100 for letter in "abcd"] == [1, 1, 1, 1]


def test_a_tokenizer_with_code_of_its_own_tokenizes_whole_prompts(bundled) -> None:
    class Shouting(TokenizersBackend):
        def encode(self, text: str, **_: Any) -> Any:
            raise AssertionError(f"it is not asked for parts, but was for {text!r}")

    shouting = Shouting(tokenizer_object=bundled.backend_tokenizer, chat_template=bundled.chat_template)
    assert_ids_are_the_templates(shouting, ["a", "b", "c"])


def test_tokens_that_are_added_later_count(bundled) -> None:
    own = AutoTokenizer.from_pretrained(str(bundled_model_folder()))
    assert_ids_are_the_templates(own, ["a<|im_start|>b", "c", "d"])
    own.add_tokens([AddedToken("a<|im_start|>", normalized=False)])
    assert_ids_are_the_templates(own, ["a<|im_start|>b", "c", "a<|im_start|>"])
