"""The model that ships in the package: complete, small, loadable without a network, and able to sort."""

import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from rl_contract.bundled import bundled_model_folder, resolve_tokenizer

MAX_BYTES = 3_000_000


def test_folder_is_complete_and_small() -> None:
    files = {path.name: path.stat().st_size for path in bundled_model_folder().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= set(files)
    assert sum(files.values()) <= MAX_BYTES


def test_resolve_tokenizer() -> None:
    assert resolve_tokenizer("bundled") == str(bundled_model_folder())
    assert resolve_tokenizer("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


def test_every_digit_is_one_token_and_the_template_frames_a_turn() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
    assert len(tokenizer.encode("1234")) == 4
    messages = [{"role": "user", "content": "sort 4 1 3 2"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "<|im_start|>user\nsort 4 1 3 2<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.process
def test_resolving_names_loads_neither_torch_nor_transformers() -> None:
    check = "import sys, rl_contract.bundled; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
