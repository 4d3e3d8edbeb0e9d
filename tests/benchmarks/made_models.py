"""Models for benchmarks, made in a temporary folder: none is downloaded."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from rl_contract.bundled import bundled_model_folder


def longer_bundled(folder: Path, positions: int) -> Path:
    """The bundled model with room for longer sequences. It was not trained on those; its speed is the same."""
    model = folder / f"bundled-{positions}"
    shutil.copytree(bundled_model_folder(), model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}), encoding="utf-8")
    return model


@dataclass(frozen=True)
class Shape:
    """Of a Llama model."""

    vocabulary: int = 32_000
    hidden: int = 512
    layers: int = 13
    positions: int = 2_048


def random_llama(folder: Path, shape: Shape) -> Path:
    """An untrained Llama (54 million parameters as `Shape` has them) with the bundled model's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = folder / f"llama-{shape.layers}x{shape.hidden}"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.hidden * 11 // 4,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden // 64,
        num_key_value_heads=shape.hidden // 128,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(model)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(bundled_model_folder() / name, model)
    return model
