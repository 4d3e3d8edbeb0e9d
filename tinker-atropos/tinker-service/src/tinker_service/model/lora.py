"""LoRA (Hu et al. 2021, arXiv:2106.09685): several adapters over one frozen base model.

y = W x + (alpha / rank) B A x, with A uniform in ±1/sqrt(in) and B zero, so that a new adapter changes nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from tinker_service.service_errors import RequestError, StartError

ALPHA = 32.0  # Tinker's: the learning rate then does not depend on the rank

LayerKind = Literal["attn", "mlp", "unembed"]


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """An adapter's shape. `seed` None: a random initialization."""

    rank: int
    seed: int | None = None
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True

    def trains(self, kind: LayerKind) -> bool:
        return {"attn": self.train_attn, "mlp": self.train_mlp, "unembed": self.train_unembed}[kind]


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """One adapter's weights: layer name -> (A [rank, in], B [out, rank])."""

    spec: LoraSpec
    weights: dict[str, tuple[torch.Tensor, torch.Tensor]]

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """All tensors by PEFT's names, sorted: the order of sums must not depend on the adapter's origin."""
        return {
            f"{name}.lora_{letter}.weight": tensor
            for name, pair in sorted(self.weights.items())
            for letter, tensor in zip("AB", pair, strict=True)
        }

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(tensor.nbytes for pair in self.weights.values() for tensor in pair)

    @classmethod
    def from_parameters(cls, spec: LoraSpec, parameters: Mapping[str, torch.Tensor]) -> "LoraAdapter":
        names = sorted({name.rsplit(".lora_", 1)[0] for name in parameters})
        return cls(
            spec, {name: (parameters[f"{name}.lora_A.weight"], parameters[f"{name}.lora_B.weight"]) for name in names}
        )

    def snapshot(self) -> "LoraAdapter":
        """A copy that later training does not change."""
        return LoraAdapter.from_parameters(
            self.spec, {name: tensor.detach().clone() for name, tensor in self.parameters.items()}
        )


@dataclass(frozen=True, slots=True)
class AdapterTokens:
    """Which tokens of a packed row an adapter works on: of all, and of those that get logits. None: all of them."""

    adapter: LoraAdapter
    tokens: torch.Tensor | None = None
    with_logits: torch.Tensor | None = None

    def of(self, kind: LayerKind) -> torch.Tensor | None:
        return self.with_logits if kind == "unembed" else self.tokens


@dataclass(frozen=True, slots=True)
class LayerUpdate:
    """An adapter's part in one layer: y += scale B A x at the given places of dimension 1 (None: everywhere)."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    places: torch.Tensor | None

    def added_to(self, outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        update = functional.linear(functional.linear(_in_dtype(inputs, self.a.dtype), self.a), self.b)
        # In place: each copy of logits is gigabytes.
        return _in_dtype(update.mul_(self.scale).add_(outputs), outputs.dtype)


class LoraLinear(nn.Module):
    """A frozen linear layer with room for adapters, each on its own tokens.

    In a bfloat16 model the adapter is float32 (Adam's steps are smaller than bfloat16 resolves), and so is the whole
    unembedding: logits rounded to bfloat16 are off by up to 0.06 at 16, and sampled and trained logprobs with them.
    """

    def __init__(self, base: nn.Linear, kind: LayerKind) -> None:
        super().__init__()
        self.base = _in_float32(base) if kind == "unembed" and base.weight.dtype == torch.bfloat16 else base
        self.kind: LayerKind = kind
        self.updates: list[LayerUpdate] = []  # changed in place: to set a module's attribute takes 10 times longer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        weight = self.base.weight
        outputs = functional.linear(_in_dtype(inputs, weight.dtype), weight, self.base.bias)
        for update in self.updates:
            if update.places is None:
                return update.added_to(outputs, inputs)
            own = update.added_to(outputs.index_select(1, update.places), inputs.index_select(1, update.places))
            outputs.index_copy_(1, update.places, own)
        return outputs


class LoraModel:
    """A causal LM whose attention, MLP and unembedding layers take adapters."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self.layers = _wrap_layers(model)

    @contextmanager
    def adapted(self, adapter: LoraAdapter | None) -> Iterator[PreTrainedModel]:
        """The model with an adapter in place; None: the base model."""
        with self.mixed([AdapterTokens(adapter)] if adapter else []) as model:
            yield model

    @contextmanager
    def mixed(self, shares: Sequence[AdapterTokens]) -> Iterator[PreTrainedModel]:
        """The model with several adapters in place, each for its own tokens of a packed row [1, N]."""
        try:
            for name, layer in self.layers.items():
                layer.updates[:] = [
                    LayerUpdate(*pair, ALPHA / share.adapter.spec.rank, share.of(layer.kind))
                    for share in shares
                    if (pair := share.adapter.weights.get(name))
                ]
            yield self.model
        finally:
            for layer in self.layers.values():
                layer.updates.clear()

    def new_adapter(self, spec: LoraSpec) -> LoraAdapter:
        generator = torch.Generator()
        if spec.seed is None:
            generator.seed()
        else:
            generator.manual_seed(spec.seed)
        weights = {
            name: _initial_weights(layer.base, spec.rank, generator)
            for name, layer in self.layers.items()
            if spec.trains(layer.kind)
        }
        if not weights:
            raise RequestError("the LoRA config trains nothing: set train_attn, train_mlp or train_unembed")
        return LoraAdapter(spec, weights)


def _in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`to` alone takes 2 microseconds to find that there is nothing to do, a hundred times per token."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _initial_weights(base: nn.Linear, rank: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    like = base.weight
    dtype = torch.float32 if like.dtype == torch.bfloat16 else like.dtype
    a = (torch.rand(rank, base.in_features, generator=generator) * 2 - 1) / math.sqrt(base.in_features)
    b = torch.zeros(base.out_features, rank)
    return a.to(like.device, dtype).requires_grad_(), b.to(like.device, dtype).requires_grad_()


def _in_float32(base: nn.Linear) -> nn.Linear:
    """A copy; a tied embedding is not changed."""
    copy = nn.Linear(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
    copy.load_state_dict({name: tensor.float() for name, tensor in base.state_dict().items()}, assign=True)
    return copy.requires_grad_(requires_grad=False)


def _wrap_layers(model: PreTrainedModel) -> dict[str, LoraLinear]:
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    wrapped = {name: LoraLinear(module, kind) for name, module in linears if (kind := _kind(name))}
    if not {"attn", "mlp"} & {layer.kind for layer in wrapped.values()}:
        raise StartError(
            f"{type(model).__name__} has no linear layers named attn or mlp to adapt; "
            f"use a model of the Llama or Qwen families"
        )
    for name, layer in wrapped.items():
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, layer)
    return wrapped


def _kind(name: str) -> LayerKind | None:
    if name == "lm_head":
        return "unembed"
    if "attn" in name or "attention" in name:
        return "attn"
    return "mlp" if "mlp" in name else None
