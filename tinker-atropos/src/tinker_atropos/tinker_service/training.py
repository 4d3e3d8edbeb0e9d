"""The training half of the engine: target logprobs, losses and accumulated gradients of one adapter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from tinker_atropos.tinker_service.adamw import AdamSettings, AdamState, adamw_step
from tinker_atropos.tinker_service.errors import RequestError
from tinker_atropos.tinker_service.lora import Adapter, LoraModel
from tinker_atropos.tinker_service.losses import LOSSES

Array = npt.NDArray[np.float32]

MAX_MICROBATCH_TOKENS = 16_384
MAX_MICROBATCH_LOGITS = 2**27  # 512 MB of float32; autograd holds a few such tensors


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence: input tokens [T], and per-token loss inputs [T] (`target_tokens` among them)."""

    tokens: npt.NDArray[np.int64]
    inputs: Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class LossOutput:
    """Per sequence, in the request's order: logprobs of the targets [T] and the loss of each token [T]."""

    logprobs: list[Array]
    losses: list[Array]

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss:sum": float(sum(float(loss.sum()) for loss in self.losses))}


@dataclass(slots=True)
class Trainee:
    """An adapter in training: its weights, accumulated gradients and optimizer state."""

    adapter: Adapter
    optimizer: AdamState | None = None


def forward_backward(
    model: LoraModel,
    trainee: Trainee,
    data: Sequence[Datum],
    *,
    loss_name: str,
    loss_config: Mapping[str, float],
    backward: bool,
) -> LossOutput:
    """Loss and logprobs; with `backward`, gradients are added to what earlier requests have accumulated."""
    loss = LOSSES[loss_name]
    config = {**loss.config, **loss_config}
    output = LossOutput([], [])
    with model.adapted(trainee.adapter) as adapted, torch.set_grad_enabled(backward):
        for microbatch in _microbatches(data, adapted.config.get_text_config().vocab_size):
            inputs = _stack(microbatch, (*loss.required, *loss.optional), adapted.device)
            logprobs_BT = target_logprobs(adapted, inputs["tokens"], inputs["target_tokens"])
            losses_BT = loss.function(logprobs_BT, inputs, config) * inputs["valid"]
            if backward:
                torch.autograd.backward(losses_BT.sum())
            output.logprobs.extend(_unstack(logprobs_BT, microbatch))
            output.losses.extend(_unstack(losses_BT, microbatch))
    return output


def target_logprobs(model: PreTrainedModel, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """Logprobs of the targets given the tokens up to their position, [B, T].

    Sequences are padded on the right: causal attention never looks there, so no mask is needed.
    """
    logits_BTV: torch.Tensor = model(input_ids=tokens_BT, use_cache=False).logits
    chosen_BT = logits_BTV.gather(-1, targets_BT[..., None]).squeeze(-1)
    return chosen_BT - logits_BTV.logsumexp(-1)


def optim_step(trainee: Trainee, settings: AdamSettings) -> dict[str, float]:
    """Apply and clear the accumulated gradients. Raises RequestError when there are none."""
    parameters = list(trainee.adapter.parameters.values())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len(gradients) != len(parameters):
        raise RequestError("optim_step found no gradients: call forward_backward before it")
    trainee.optimizer = trainee.optimizer or AdamState.zeros(parameters)
    norm = adamw_step(parameters, gradients, trainee.optimizer, settings)
    for parameter in parameters:
        parameter.grad = None
    return {"grad_norm": norm, "optimizer_step": float(trainee.optimizer.step)}


def _microbatches(data: Sequence[Datum], vocabulary: int) -> Iterator[Sequence[Datum]]:
    """Cut the data, in order, so that sequences times longest sequence stays within the budget."""
    budget = max(1, min(MAX_MICROBATCH_TOKENS, MAX_MICROBATCH_LOGITS // vocabulary))
    start = longest = 0
    for index, datum in enumerate(data):
        longest = max(longest, len(datum.tokens))
        if index > start and longest * (index - start + 1) > budget:
            yield data[start:index]
            start, longest = index, len(datum.tokens)
    yield data[start:]


def _stack(data: Sequence[Datum], names: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
    """Tensors [B, T] padded with zeros on the right; `valid` is 1 where there is a token."""
    longest = max(len(datum.tokens) for datum in data)
    dtypes = {"tokens": np.int64, "target_tokens": np.int64, "valid": np.float32, **dict.fromkeys(names, np.float32)}
    stacked: dict[str, npt.NDArray[Any]] = {
        name: np.zeros((len(data), longest), dtype) for name, dtype in dtypes.items()
    }
    for row, datum in enumerate(data):
        length = len(datum.tokens)
        stacked["tokens"][row, :length] = datum.tokens
        stacked["target_tokens"][row, :length] = datum.inputs["target_tokens"]
        stacked["valid"][row, :length] = 1
        for name in names:
            stacked[name][row, :length] = datum.inputs.get(name, 1)
    return {name: torch.from_numpy(array).to(device) for name, array in stacked.items()}


def _unstack(values_BT: torch.Tensor, data: Sequence[Datum]) -> list[Array]:
    array = values_BT.detach().float().cpu().numpy()
    return [array[row, : len(datum.tokens)] for row, datum in enumerate(data)]
