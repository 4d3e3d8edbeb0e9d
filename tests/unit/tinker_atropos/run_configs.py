"""A run's config with what a test is about, and small numbers for the rest."""

from collections.abc import Mapping
from typing import Any

from tinker_atropos.config.run_config import RunConfig, parse_config

ENV = {"total_steps": 40, "group_size": 2, "batch_size": 4, "tokenizer_name": "bundled", "max_token_length": 64}


def run_config(env: Mapping[str, Any] | None = None, *, model: str = "bundled", **tinker: Any) -> RunConfig:
    return parse_config({"env": {**ENV, **(env or {})}, "openai": [{"model_name": model}], "tinker": tinker})
