"""The model that ships in this package: small enough to learn on a laptop's CPU while you watch.

Only paths here: resolving a name must not import torch or transformers.
"""

from pathlib import Path

BUNDLED = "bundled"
"""The name under which the bundled model and its tokenizer are known everywhere."""


def bundled_model_folder() -> Path:
    """A Hugging Face model folder: config, weights, tokenizer, model card."""
    return Path(__file__).parent / "bundled_model"


def resolve_tokenizer(name: str) -> str:
    """What transformers can load: the bundled model's folder for `bundled`, any other name unchanged."""
    return str(bundled_model_folder()) if name == BUNDLED else name
