"""Adapters over model families other than the bundled one: tiny, randomly initialized."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.tinker_service.sampled import sampled
from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from tinker_service.model.adamw import AdamSettings
from tinker_service.model.lora import LoraModel, LoraSpec
from tinker_service.model.sampling.sample_jobs import SamplingRequest
from tinker_service.model.training import Trainee, TrainingDatum, forward_backward, optim_step
from tinker_service.service_errors import StartError

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
FAMILIES: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES),
    "gemma3": Gemma3TextConfig(**SIZES, sliding_window=16),
}
PROMPTS = ((5, 9, 3), (7, 7, 2, 8, 11, 4))


def tiny_model(config: PreTrainedConfig, dtype: torch.dtype = torch.float64) -> LoraModel:
    torch.manual_seed(0)
    return LoraModel(AutoModelForCausalLM.from_config(config, dtype=dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.bfloat16, 0.05)], ids=["f64", "bf16"])
@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_a_family_trains_what_it_samples(config: PreTrainedConfig, dtype: torch.dtype, tolerance: float) -> None:
    """Sampled in one padded batch, scored by the training path: the same logprobs. Then a step moves them."""
    model = tiny_model(config, dtype)
    trainee = Trainee(model.new_adapter(LoraSpec(rank=4, seed=0)))
    assert {layer.kind for layer in model.layers.values()} == {"attn", "mlp", "unembed"}
    requests = [SamplingRequest(prompt, num_samples=2, max_tokens=8, seed=3) for prompt in PROMPTS]
    rows = [row for group in sampled(model, requests, trainee.adapter) for row in group]

    data = []
    for row in rows:
        tokens = np.array([*row.request.prompt, *row.tokens])
        padding = np.zeros(len(row.request.prompt) - 1, np.float32)
        drawn_with = np.array(row.logprobs, np.float32)
        inputs = {
            "target_tokens": tokens[1:],
            "logprobs": np.concatenate([padding, drawn_with]),
            "advantages": np.concatenate([padding, np.ones_like(drawn_with)]),
        }
        data.append(TrainingDatum(tokens[:-1], inputs))
    options: dict[str, Any] = {"loss_name": "importance_sampling", "loss_config": {}, "backward": True}
    before = forward_backward(model, trainee, data, **options)
    for row, scored in zip(rows, before.logprobs, strict=True):
        np.testing.assert_allclose(scored[-len(row.tokens) :], row.logprobs, atol=tolerance)

    optim_step(trainee, AdamSettings(learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-8))
    after = forward_backward(model, trainee, data, **options)
    assert after.metrics["loss:sum"] < before.metrics["loss:sum"]


def test_a_family_without_linear_layers_is_refused() -> None:
    """GPT-2's attention and MLP are convolutions: adapting only its unembedding would be a silent half."""
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    with pytest.raises(StartError, match="GPT2LMHeadModel has no linear layers named attn or mlp"):
        tiny_model(config)
