"""Checks of training and sampling requests against the model. All raise RequestError saying what to change."""

from collections.abc import Sequence

import numpy as np
from tinker import types

from tinker_atropos.config import nearest
from tinker_atropos.tinker_service.errors import RequestError
from tinker_atropos.tinker_service.losses import LOSSES, Loss
from tinker_atropos.tinker_service.sampling import SamplingRequest
from tinker_atropos.tinker_service.training import Datum
from tinker_atropos.tinker_service.wire import ForwardBackwardRequest

MAX_SAMPLES = 1_024


def check_forward_backward(request: ForwardBackwardRequest, vocabulary: int, context: int) -> None:
    loss = LOSSES.get(request.loss_name)
    if loss is None:
        raise RequestError(
            f"loss {request.loss_name!r} is not supported here{nearest(request.loss_name, LOSSES)} "
            f"(supported: {', '.join(LOSSES)})"
        )
    for name in request.loss_config:
        if name not in loss.config:
            raise RequestError(
                f"loss_fn_config.{name} is not a setting of {request.loss_name} "
                f"(known: {', '.join(loss.config) or 'none'})"
            )
    if not request.data:
        raise RequestError("data is empty: give at least one sequence")
    for index, datum in enumerate(request.data):
        _check_tokens(f"data[{index}].model_input", datum.tokens.tolist(), vocabulary, context)
        _check_loss_inputs(f"data[{index}].loss_fn_inputs", datum, request.loss_name, loss, vocabulary)


def parse_sampling(
    request: types.SampleRequest, vocabulary: int, context: int, model_stop_tokens: frozenset[int]
) -> SamplingRequest:
    """The request as the engine wants it: `max_tokens` within the context, stops by kind."""
    unsupported = [
        name
        for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k")
        if getattr(request, name)
    ]
    if unsupported:
        raise RequestError(f"{', '.join(unsupported)}: not supported by this service; leave it out")
    prompt = _text_tokens(request.prompt)
    _check_tokens("prompt", prompt, vocabulary, context - 1)
    params = request.sampling_params
    _check_sampling_params(params)
    if not 1 <= request.num_samples <= MAX_SAMPLES:
        raise RequestError(f"num_samples is {request.num_samples}; it must be 1 to {MAX_SAMPLES}")
    room = context - len(prompt)
    stop_tokens, stop_strings = _stops(params.stop, model_stop_tokens)
    return SamplingRequest(
        prompt=tuple(prompt),
        num_samples=request.num_samples,
        max_tokens=min(params.max_tokens or room, room),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        seed=params.seed,
        stop_tokens=stop_tokens,
        stop_strings=stop_strings,
    )


def scored_prompt_tokens(request: types.SampleRequest) -> int:
    """How many of the last prompt tokens are to be scored."""
    if not request.prompt_logprobs:
        return 0
    length = request.prompt.length
    last_n = request.prompt_logprobs_last_n
    if last_n is not None and not 1 <= last_n < length:
        raise RequestError(f"prompt_logprobs_last_n is {last_n}; it must be 1 to {length - 1}, the prompt's length - 1")
    return length if last_n is None else last_n


def _text_tokens(prompt: types.ModelInput) -> list[int]:
    try:
        return prompt.to_ints()
    except ValueError:
        raise RequestError("the prompt holds images or audio; this service takes tokens only") from None


def _check_tokens(field: str, tokens: Sequence[int], vocabulary: int, limit: int) -> None:
    if not tokens:
        raise RequestError(f"{field} is empty: give at least one token")
    if len(tokens) > limit:
        raise RequestError(
            f"{field} has {len(tokens)} tokens; at most {limit} fit into the model's context: shorten it"
        )
    if min(tokens) < 0 or max(tokens) >= vocabulary:
        raise RequestError(
            f"{field} holds token ids from {min(tokens)} to {max(tokens)}; the model knows 0 to {vocabulary - 1}: "
            f"use its own tokenizer"
        )


def _check_loss_inputs(field: str, datum: Datum, loss_name: str, loss: Loss, vocabulary: int) -> None:
    required = ("target_tokens", *loss.required)
    known = (*required, *loss.optional)
    for name in required:
        if name not in datum.inputs:
            raise RequestError(f"{field} lacks {name!r}; {loss_name} needs {', '.join(required)}")
    for name, values in datum.inputs.items():
        if name not in known:
            raise RequestError(f"{field} has {name!r}, which {loss_name} does not take (it takes {', '.join(known)})")
        if len(values) != len(datum.tokens):
            raise RequestError(
                f"{field}[{name!r}] has {len(values)} values and model_input {len(datum.tokens)} tokens: "
                f"lengths must be equal"
            )
        if not np.isfinite(values).all():
            raise RequestError(f"{field}[{name!r}] holds NaN or infinity: it would ruin the weights")
    targets = datum.inputs["target_tokens"]
    if not np.issubdtype(targets.dtype, np.integer):
        raise RequestError(f"{field}['target_tokens'] must be int64, not {targets.dtype}")
    _check_tokens(f"{field}['target_tokens']", targets.tolist(), vocabulary, len(targets))


def _check_sampling_params(params: types.SamplingParams) -> None:
    if params.max_tokens is not None and params.max_tokens < 1:
        raise RequestError(f"max_tokens is {params.max_tokens}; it must be at least 1")
    if not 0 <= params.temperature < np.inf:
        raise RequestError(f"temperature is {params.temperature}; it must be 0 (greedy) or a positive number")
    if not 0 < params.top_p <= 1:
        raise RequestError(f"top_p is {params.top_p}; it must be above 0 and at most 1 (off)")
    if params.top_k < -1 or params.top_k == 0:
        raise RequestError(f"top_k is {params.top_k}; it must be at least 1, or -1 (off)")


def _stops(
    stop: str | Sequence[str] | Sequence[int] | None, model_stop_tokens: frozenset[int]
) -> tuple[frozenset[int], tuple[str, ...]]:
    """Stop tokens and stop strings. None: the model's end tokens; an empty list: no stop at all, as Tinker has it."""
    if stop is None:
        return model_stop_tokens, ()
    entries = [stop] if isinstance(stop, str) else list(stop)
    return (
        frozenset(entry for entry in entries if isinstance(entry, int)),
        tuple(entry for entry in entries if isinstance(entry, str) and entry),
    )
