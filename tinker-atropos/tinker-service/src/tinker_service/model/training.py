"""The training half of the engine: target logprobs, losses and accumulated gradients of one adapter."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from tinker_service.model.adamw import AdamSettings, AdamState, adamw_step
from tinker_service.model.lora import LoraAdapter, LoraModel
from tinker_service.model.losses import LOSSES
from tinker_service.model.packed_attention import packed_attention
from tinker_service.model.shared_prefixes import PackedSequences, Tokens
from tinker_service.service_errors import RequestError

log = logging.getLogger(__name__)

Array = npt.NDArray[np.float32]

MAX_MICROBATCH_TOKENS = 16_384
MAX_MICROBATCH_LOGITS = 2**27  # 512 MB of float32; autograd holds a few such tensors


@dataclass(frozen=True, slots=True)
class TrainingDatum:
    """One sequence: input tokens [T], and loss inputs in the shape of `target_tokens` (one of them).

    The shape is [T], or [T, K] for K weighted targets per position.
    """

    tokens: npt.NDArray[np.int64]
    inputs: Mapping[str, npt.NDArray[np.generic]]

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.inputs["target_tokens"].shape


@dataclass(frozen=True, slots=True)
class LossOutput:
    """Per sequence, in the request's order and the shape of its targets: logprobs of the targets, and their losses."""

    logprobs: list[Array]
    losses: list[Array]

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss:sum": float(sum(float(loss.sum()) for loss in self.losses))}


@dataclass(slots=True)
class Trainee:
    """An adapter in training: its weights, accumulated gradients and optimizer state."""

    adapter: LoraAdapter
    optimizer: AdamState | None = None

    @property
    def size(self) -> int:
        """Bytes of the weights, and of as many gradients, first and second moments."""
        return 4 * self.adapter.size


def forward_backward(
    model: LoraModel,
    trainee: Trainee,
    data: Sequence[TrainingDatum],
    *,
    loss_name: str,
    loss_config: Mapping[str, float],
    backward: bool,
) -> LossOutput:
    """Loss and logprobs; with `backward`, gradients are added to what earlier requests have accumulated.

    A request that fails halfway adds none.
    """
    loss = LOSSES[loss_name]
    config = {**loss.config, **loss_config}
    defaults = {**dict.fromkeys(loss.inputs, 1.0), **config}
    output = LossOutput([], [])
    parameters = trainee.adapter.parameters.values()
    with model.adapted(trainee.adapter) as adapted, torch.set_grad_enabled(backward), all_or_no_gradients(parameters):
        for microbatch in _microbatches(data, adapted.config.get_text_config().vocab_size):
            inputs = _stack(microbatch, {name: defaults[name] for name in loss.inputs}, adapted.device)
            logprobs = target_logprobs(adapted, [datum.tokens for datum in microbatch], inputs["target_tokens"])
            losses = loss.function(logprobs, inputs, config) * inputs["valid"]
            if backward:
                torch.autograd.backward(losses.sum())
            output.logprobs.extend(_unstack(logprobs, microbatch))
            output.losses.extend(_unstack(losses, microbatch))
    return output


@contextmanager
def all_or_no_gradients(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restores the gradients if the block fails: no later step may apply a part of a request."""
    before = [(parameter, None if parameter.grad is None else parameter.grad.clone()) for parameter in parameters]
    try:
        yield
    except BaseException:
        for parameter, gradient in before:
            parameter.grad = gradient
        raise


def target_logprobs(model: PreTrainedModel, tokens: Sequence[Tokens], targets: torch.Tensor) -> torch.Tensor:
    """Logprobs of the targets [B, T] or [B, T, K], given each sequence's tokens up to their position."""
    packed = PackedSequences(tokens, model.device, model.dtype)
    with packed_attention(model):
        logits_1NV = model(
            input_ids=packed.tokens,
            position_ids=packed.positions,
            use_cache=False,
            pieces=packed.pieces,
            order=packed.order,
        ).logits
    logprobs_BTK: torch.Tensor = ChosenLogprobs.apply(  # type: ignore[no-untyped-call]  # torch's
        logits_1NV[0], packed.places, targets.view(*packed.places.shape, -1)
    )
    return logprobs_BTK.view(targets.shape)


class ChosenLogprobs(torch.autograd.Function):
    """log_softmax of N rows of logits at some of V tokens: of row `places` [B, T], those in `chosen` [B, T, K].

    Its gradient takes one tensor of the logits' size; autograd's takes three.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: torch.Tensor, places_BT: torch.Tensor, chosen_BTK: torch.Tensor) -> torch.Tensor:
        normalizer_N = logits_NV.logsumexp(-1)
        ctx.save_for_backward(logits_NV, normalizer_N, places_BT, chosen_BTK)
        return logits_NV[places_BT[..., None], chosen_BTK] - normalizer_N[places_BT][..., None]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits_NV, normalizer_N, places_BT, chosen_BTK = ctx.saved_tensors
        (gradient_BTK,) = gradients
        gradient_N = torch.zeros_like(normalizer_N).index_add_(0, places_BT.flatten(), gradient_BTK.sum(-1).flatten())
        gradient_NV = (logits_NV - normalizer_N[:, None]).exp_().mul_(-gradient_N[:, None])
        cells = places_BT[..., None] * logits_NV.shape[-1] + chosen_BTK
        gradient_NV.view(-1).index_add_(0, cells.flatten(), gradient_BTK.flatten())
        return gradient_NV, None, None


def optim_step(trainee: Trainee, settings: AdamSettings) -> dict[str, float]:
    """Apply and clear the accumulated gradients; ones that are not finite are cleared only, and `grad_norm` says so.

    Raises RequestError if there are none.
    """
    parameters = list(trainee.adapter.parameters.values())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len(gradients) != len(parameters):
        raise RequestError("optim_step found no gradients: call forward_backward before it")
    trainee.optimizer = trainee.optimizer or AdamState.zeros(parameters)
    norm = adamw_step(parameters, gradients, trainee.optimizer, settings)
    if not math.isfinite(norm):
        log.warning("an optimizer step was skipped: the norm of its gradient is %s; the weights are unchanged", norm)
    for parameter in parameters:
        parameter.grad = None
    return {"grad_norm": norm, "optimizer_step": float(trainee.optimizer.step)}


def _microbatches(data: Sequence[TrainingDatum], vocabulary: int) -> Iterator[Sequence[TrainingDatum]]:
    """Split the data, in order, so that sequences times longest sequence stays within the budget."""
    budget = max(1, min(MAX_MICROBATCH_TOKENS, MAX_MICROBATCH_LOGITS // vocabulary))
    start = longest = 0
    for index, datum in enumerate(data):
        longest = max(longest, len(datum.tokens))
        if index > start and longest * (index - start + 1) > budget:
            yield data[start:index]
            start, longest = index, len(datum.tokens)
    yield data[start:]


def _stack(
    data: Sequence[TrainingDatum], defaults: Mapping[str, float], device: torch.device
) -> dict[str, torch.Tensor]:
    """Tensors in the targets' shape [B, T] or [B, T, K], padded with zeros on the right.

    `defaults` names the loss inputs, with the value to use if a sequence lacks one. `valid` is 1 where there is a
    target.
    """
    longest = max(len(datum.tokens) for datum in data)
    widths = [shape[1:] for shape in (datum.target_shape for datum in data)]
    shape = (len(data), longest, *max(widths))
    dtypes = {"target_tokens": np.int64, "valid": np.float32, **dict.fromkeys(defaults, np.float32)}
    stacked: dict[str, npt.NDArray[Any]] = {name: np.zeros(shape, dtype) for name, dtype in dtypes.items()}
    for row, datum in enumerate(data):
        place = _place(row, datum, shape)
        stacked["target_tokens"][place] = datum.inputs["target_tokens"]
        stacked["valid"][place] = 1
        for name, default in defaults.items():
            stacked[name][place] = datum.inputs.get(name, default)
    return {name: torch.from_numpy(array).to(device) for name, array in stacked.items()}


def _place(row: int, datum: TrainingDatum, shape: Sequence[int]) -> tuple[int | slice, ...]:
    """The index of a sequence's values in a stacked array; a single target per position is the first of several."""
    sizes = [slice(size) for size in datum.target_shape]
    return (row, *sizes, *([0] * (len(shape) - 1 - len(sizes))))


def _unstack(values: torch.Tensor, data: Sequence[TrainingDatum]) -> list[Array]:
    array = values.detach().float().cpu().numpy()
    return [array[_place(row, datum, array.shape)] for row, datum in enumerate(data)]
