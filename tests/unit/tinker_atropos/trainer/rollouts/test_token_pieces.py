"""Pieces of tokens, joined, are the text that the tokenizer makes of all of them at once."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.trainer.rollouts.token_pieces import INCOMPLETE, TokenPieces

CORPUS = [
    "the sum of 12 and 30 is 42, isn't it? ",
    "Größe: 3 µm — 漢字と仮名。",
    "def f(x):\n    return x\n",
    "😀😃😄 👩‍🚀",
] * 3
SPECIAL = ["<|begin|>", "<|end|>"]


def byte_level() -> Tokenizer:
    """As Qwen's and Llama 3's: pairs of bytes, merged without regard to characters."""
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    fast.add_special_tokens(SPECIAL)
    return Tokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast))


def sentencepiece() -> Tokenizer:
    """As Llama 2's and Gemma's: a mark for a space, bytes for characters that it does not know, and a decoder that
    strips the space at the start of a text.
    """
    known = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz0123456789.,é"]
    merges = [("▁", "a"), ("t", "h"), ("▁", "th"), ("▁th", "e")]
    known += ["".join(pair) for pair in merges]
    vocabulary = {token: number for number, token in enumerate(known)}
    model = models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    fast = FastTokenizer(model)
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.add_special_tokens(SPECIAL)
    return Tokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast))


TOKENIZERS = {"bundled": lambda: Tokenizer("bundled"), "byte level": byte_level, "sentencepiece": sentencepiece}


@pytest.fixture(scope="module", params=TOKENIZERS, name="subject")
def _subject(request) -> tuple[Tokenizer, TokenPieces]:
    tokenizer = TOKENIZERS[request.param]()
    return tokenizer, TokenPieces(tokenizer)


def tokens_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).tolist()


def whole(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return tokenizer.verbatim(np.array(tokens, np.int64))


TEXTS = st.text(
    st.one_of(
        st.characters(codec="utf-8", exclude_characters=INCOMPLETE),
        st.sampled_from("  \n\tab12éä漢字カ😀👩\u200d🚀\u0301\u0308\u202e\ufe0f"),
    ),
    max_size=40,
)


@given(TEXTS)
@settings(max_examples=100)
def test_joined_pieces_are_the_text(subject, text) -> None:
    tokenizer, pieces = subject
    tokens = tokens_of(tokenizer, text)
    found = pieces.of(tokens)
    assert len(found) == len(tokens)
    assert "".join(found) == before(tokenizer, tokens) + whole(tokenizer, tokens)


def before(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """What the tokenizer strips from the start of a text, because it has put it there; pieces keep it."""
    return " " if tokens and whole(tokenizer, tokens_of(tokenizer, "b")[:1]) == "" else ""


@given(TEXTS, st.data())
@settings(max_examples=100)
def test_a_sequence_that_begins_and_ends_within_characters(subject, text, data) -> None:
    """What cannot be shown is marked, and nothing else is lost."""
    tokenizer, pieces = subject
    tokens = tokens_of(tokenizer, text)
    start = data.draw(st.integers(0, len(tokens)))
    tokens = tokens[start : data.draw(st.integers(start, len(tokens)))]
    found = pieces.of(tokens)
    assert len(found) == len(tokens)
    assert without_marks("".join(found)) in without_marks(whole(tokenizer, tokens_of(tokenizer, text)), " ")


def without_marks(text: str, before: str = "") -> str:
    return before + re.sub(INCOMPLETE, "", text)


@given(st.lists(st.integers(0, 290), max_size=30))
def test_any_tokens_have_a_piece_each(subject, tokens) -> None:
    """A model samples what it likes: halves of characters in any order."""
    found = subject[1].of(tokens)
    assert len(found) == len(tokens)
    assert found == subject[1].of(tokens)  # what is remembered changes nothing


@pytest.mark.parametrize("text", ["😀", "漢", "é", "👩\u200d🚀"])
def test_a_character_is_with_its_first_token(text) -> None:
    tokenizer = sentencepiece()
    tokens = tokens_of(tokenizer, f"a{text}b")[1:]  # without the mark at the start
    pieces = TokenPieces(tokenizer).of(tokens)
    shown = [(index, piece) for index, piece in enumerate(pieces) if piece]
    assert "".join(piece for _, piece in shown).endswith(f"{text}b")
    assert not any(INCOMPLETE in piece for piece in pieces)
    sizes = [1 if character == "é" else len(character.encode()) for character in text]  # é has a token of its own
    positions = [index for index, _ in shown][-len(text) - 1 :]
    assert np.diff(positions).tolist() == sizes


def test_special_tokens_are_shown_and_spaces_at_the_start_kept(subject) -> None:
    tokenizer, pieces = subject
    special = "<|im_end|>" if tokenizer.eos else SPECIAL[1]
    found = pieces.of(tokens_of(tokenizer, f"the 12{special}"))
    assert found[-1] == special
    space = tokens_of(tokenizer, "a a")[1:]
    assert "".join(pieces.of(space)) == " a"


def test_ids_at_the_end_of_the_vocabulary_have_an_empty_piece_or_a_text(subject) -> None:
    """A model's embedding may be longer than its tokenizer's list."""
    tokenizer, pieces = subject
    last = len(tokenizer._tokenizer) - 1
    first, unknown, again = pieces.of([last, last + 100, last])
    assert first == again == whole(tokenizer, [last])
    assert unknown == ""


def test_no_tokens(subject) -> None:
    assert subject[1].of([]) == []
