"""The bundled model's tokenizer is loaded past transformers' automatic classes: it must be what they would choose."""

from transformers import AutoConfig, AutoTokenizer

from tinker_atropos.bundled import bundled_model_folder
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer


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
