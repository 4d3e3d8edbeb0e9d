"""What matters here of a model's config. Read without torch, and without a network if the model is local."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from rl_contract.bundled import BUNDLED, resolve_tokenizer


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`kind` is transformers' model type: qwen3, llama. `vocabulary` counts token ids; `hidden_size` is the width."""

    kind: str
    vocabulary: int
    hidden_size: int | None


def read_model_config(name: str) -> ModelConfig | None:
    """The config of a folder, the bundled model, or a model of the hub. None: none, or it cannot be fetched."""
    folder = resolve_tokenizer(name)
    if folder == resolve_tokenizer(BUNDLED):  # AutoConfig reads the source of every model that transformers knows
        raw = orjson.loads(Path(folder, "config.json").read_bytes())
        return ModelConfig(raw["model_type"], raw["vocab_size"], raw["hidden_size"])
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError):
        return None
    text = config.get_text_config()
    return ModelConfig(str(config.model_type), int(getattr(text, "vocab_size", 0)), getattr(text, "hidden_size", None))
