"""The SDK's messages to and from plain values (tinker/proto/tinker_public.proto, SDK 0.38), and checks of requests
against the model: all raise RequestError saying what to change.
"""

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from tinker_service.model.losses import LOSSES, MANY_TARGETS, Loss
from tinker_service.model.recordings import Provenance, ProvenanceSpan
from tinker_service.model.sampling.sample_jobs import (
    Integers,
    PromptScoring,
    SampleAnswer,
    SamplingRequest,
    TopLogprobs,
)
from tinker_service.model.sampling.scoring import NOTHING_ASKED
from tinker_service.model.training import Array, LossOutput, TrainingDatum
from tinker_service.service_errors import RequestError

_DTYPES = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
_STOP_REASONS = {"stop": pb.STOP_REASON_STOP, "length": pb.STOP_REASON_LENGTH}
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_EMPTY_LOGPROB = -99_999.0  # with token id 0: an empty cell of top-k logprobs
_MAX_DENSE_CELLS = 2**25  # of one sparse tensor, which may claim any shape


@dataclass(frozen=True, slots=True)
class ForwardBackwardRequest:
    model_id: str
    seq_id: int
    loss_name: str
    loss_config: Mapping[str, float]
    forward_only: bool
    data: Sequence[TrainingDatum]
    provenance: Sequence[Provenance | None]


def parse_forward_backward(body: bytes) -> ForwardBackwardRequest:
    """Raises RequestError if the body is not such a message, or not plain token sequences."""
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise RequestError(
            "the body is not a ForwardBackwardRequest; this service speaks to the tinker SDK 0.38"
        ) from None
    return ForwardBackwardRequest(
        model_id=message.model_id,
        seq_id=message.seq_id,
        loss_name=message.loss_fn,
        loss_config=_loss_config(message),
        forward_only=message.forward_only,
        data=[_datum(index, datum) for index, datum in enumerate(message.data)],
        provenance=[_provenance(datum) for datum in message.data],
    )


def loss_output_message(output: LossOutput) -> bytes:
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics.update(output.metrics)
    pairs = zip(output.logprobs, output.losses, strict=True)
    for trailing_shape, group in itertools.groupby(pairs, lambda pair: pair[0].shape[1:]):
        logprobs, losses = zip(*group, strict=True)
        record = message.loss_fn_outputs.add(num_datums=len(logprobs))
        for name, arrays in (("logprobs", logprobs), ("elementwise_loss", losses)):
            record.fields[name].CopyFrom(_batched_tensor(arrays, trailing_shape))
    return bytes(message.SerializeToString())


def numbers(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics for an answer in JSON, which has no NaN: as text, as in protobuf's JSON, and as the SDK reads them."""
    return {name: value if math.isfinite(value) else _NOT_FINITE[str(value)] for name, value in metrics.items()}


def sample_message(sampled: SampleAnswer) -> bytes:
    message = pb.SampleResponse()
    for continuation in sampled.continuations:
        sequence = message.sequences.add(
            stop_reason=_STOP_REASONS[continuation.stop_reason or "length"],
            tokens=np.array(continuation.tokens, np.int32).tobytes(),
            logprobs=np.array(continuation.logprobs, np.float32).tobytes(),
        )
        if (top := continuation.top_logprobs) is not None:
            sequence.topk_sampled_logprobs.CopyFrom(_top_logprobs(top))
    scores = sampled.prompt
    if scores.logprobs is not None:
        message.prompt_logprobs = scores.logprobs.tobytes()
    if scores.top is not None:
        message.topk_prompt_logprobs.CopyFrom(_top_logprobs(scores.top))
    if scores.targets is not None:
        message.target_prompt_logprobs.CopyFrom(_tensor(scores.targets, pb.DTYPE_FLOAT32))
    if scores.drawn is not None:
        tokens, logprobs = scores.drawn
        message.prompt_alt_tokens.tokens.CopyFrom(_tensor(tokens, pb.DTYPE_INT64))
        message.prompt_alt_tokens.logprobs.CopyFrom(_tensor(logprobs, pb.DTYPE_FLOAT32))
    return bytes(message.SerializeToString())


def _batched_tensor(arrays: Sequence[Array], trailing_shape: Sequence[int]) -> pb.BatchedTensor:
    return pb.BatchedTensor(
        dtype=pb.DTYPE_FLOAT32,
        data=b"".join(array.tobytes() for array in arrays),
        offsets=np.cumsum([0, *(array.nbytes for array in arrays)]).astype(np.int64).tobytes(),
        trailing_shape=trailing_shape,
    )


def _top_logprobs(top: TopLogprobs) -> pb.TopkLogprobs:
    possible = np.isfinite(top.logprobs)
    length, k = top.logprobs.shape
    return pb.TopkLogprobs(
        token_ids=np.where(possible, top.tokens, 0).astype(np.int32).tobytes(),
        logprobs=np.where(possible, top.logprobs, _EMPTY_LOGPROB).astype(np.float32).tobytes(),
        k=k,
        length=length,
    )


def _tensor(array: npt.NDArray[np.generic], dtype: pb.DType.ValueType) -> pb.Tensor:
    return pb.Tensor(dense=array.tobytes(), dtype=dtype, shape=array.shape)


def _loss_config(message: pb.ForwardBackwardRequest) -> dict[str, float]:
    for name, value in message.loss_fn_config_v2.items():
        if value.WhichOneof("value") != "number":
            raise RequestError(f"loss_fn_config.{name} is {value.text!r}; it must be a number")
    return {name: float(value.number) for name, value in message.loss_fn_config_v2.items()}


def _datum(index: int, datum: pb.Datum) -> TrainingDatum:
    if any(chunk.WhichOneof("chunk") != "encoded_text" for chunk in datum.model_input):
        raise RequestError(f"data[{index}].model_input holds images or audio; this service takes tokens only")
    try:
        chunks = [np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in datum.model_input]
    except ValueError:
        raise RequestError(f"data[{index}].model_input does not hold whole int32 tokens") from None
    tokens = np.concatenate([np.empty(0, np.int32), *chunks]).astype(np.int64)
    return TrainingDatum(tokens, {name: _array(index, name, tensor) for name, tensor in datum.loss_fn_inputs.items()})


def _provenance(datum: pb.Datum) -> Provenance | None:
    if not datum.loss_fn_input_spans:
        return None
    return Provenance(_spans(datum.model_input_spans), _spans(datum.loss_fn_input_spans))


def _spans(messages: Iterable[pb.ProvenanceSpan]) -> list[ProvenanceSpan]:
    kinds = ((each.WhichOneof("span") == "sampled_tokens", each) for each in messages)
    spans = ((sampled, each.sampled_tokens if sampled else each.prompt_tokens) for sampled, each in kinds)
    return [
        ProvenanceSpan(each.sequence_id, sampled, max(0, each.offset), max(0, each.length)) for sampled, each in spans
    ]


def _array(index: int, name: str, tensor: pb.Tensor) -> npt.NDArray[np.generic]:
    """A dense array of one or two axes; the SDK sends two-dimensional torch tensors as sparse rows (CSR)."""
    field = f"data[{index}].loss_fn_inputs[{name!r}]"
    dtype, shape = _DTYPES.get(tensor.dtype), tuple(tensor.shape)
    if dtype is None or len(shape) > 2 or min(shape, default=0) < 0:
        raise RequestError(f"{field} must be float32 or int64, of one or two axes")
    try:
        if tensor.HasField("sparse_csr"):
            return _densified(tensor.sparse_csr, np.dtype(dtype), shape)
        flat = np.frombuffer(tensor.dense, dtype)
        return flat.reshape(shape) if shape else flat
    except (ValueError, IndexError):
        raise RequestError(f"{field} does not hold as many values as its shape {list(shape)} says") from None


def _densified(csr: pb.SparseCsr, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    rows, columns = shape
    if rows * columns > _MAX_DENSE_CELLS:
        raise ValueError(shape)
    row_ends, cells = np.frombuffer(csr.crow_indices, np.int64), np.frombuffer(csr.col_indices, np.int64)
    dense = np.zeros((rows, columns), dtype)
    dense[np.repeat(np.arange(rows), np.diff(row_ends)), cells] = np.frombuffer(csr.values, dtype)
    return dense


MAX_SAMPLES = 1_024
MAX_TOP = 1_024  # of top-k logprobs and of drawn alternatives, per position


def check_forward_backward(request: ForwardBackwardRequest, vocabulary: int, context: int) -> None:
    loss = LOSSES.get(request.loss_name)
    if loss is None:
        near = difflib.get_close_matches(request.loss_name, LOSSES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise RequestError(f"loss {request.loss_name!r} is not supported here{hint} (supported: {', '.join(LOSSES)})")
    for name in request.loss_config:
        if name not in loss.settings:
            raise RequestError(
                f"loss_fn_config.{name} is not a setting of {request.loss_name} "
                f"(known: {', '.join(loss.settings) or 'none'})"
            )
    for name in loss.required_config:
        if name not in request.loss_config:
            raise RequestError(f"{request.loss_name} needs loss_fn_config={{{name!r}: ...}}: it has no default")
    if not request.data:
        raise RequestError("data is empty: give at least one sequence")
    for index, datum in enumerate(request.data):
        _check_tokens(f"data[{index}].model_input", datum.tokens.tolist(), vocabulary, context)
        _check_loss_inputs(f"data[{index}].loss_fn_inputs", datum, request.loss_name, loss, vocabulary)


def parse_sampling(
    request: types.SampleRequest, vocabulary: int, context: int, model_stop_tokens: frozenset[int]
) -> SamplingRequest:
    """The request in the engine's form: `max_tokens` within the context, stops by kind."""
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
        top_logprobs=_top_k("topk_sample_logprobs", request.topk_sample_logprobs, vocabulary),
    )


def parse_scoring(request: types.SampleRequest, vocabulary: int) -> PromptScoring | None:
    """Which scores the request wants for its prompt; None: none."""
    top_k = _top_k("topk_prompt_logprobs", request.topk_prompt_logprobs, vocabulary)
    draws = request.prompt_alt_tokens_k
    if not 0 <= draws <= MAX_TOP:
        raise RequestError(f"prompt_alt_tokens_k is {draws}; it must be 0 to {MAX_TOP}")
    targets = _target_tokens(request, vocabulary)
    if not (request.prompt_logprobs or top_k or draws or targets is not None):
        return None
    length, last_n = request.prompt.length, request.prompt_logprobs_last_n
    if last_n is not None and not 1 <= last_n < length:
        raise RequestError(f"prompt_logprobs_last_n is {last_n}; it must be 1 to {length - 1}, the prompt's length - 1")
    return PromptScoring(
        logprobs=bool(request.prompt_logprobs),
        last_n=last_n,
        top_k=top_k,
        targets=targets,
        draws=draws,
        temperature=request.sampling_params.temperature,
        seed=request.sampling_params.seed,
    )


def _target_tokens(request: types.SampleRequest, vocabulary: int) -> Integers | None:
    tensor = request.target_prompt_logprobs
    if tensor is None:
        return None
    rows = request.prompt.length - 1
    shape = tuple(tensor.shape or ())
    if tensor.sparse_crow_indices is not None or len(shape) != 2 or shape[0] != rows:
        raise RequestError(
            f"target_prompt_logprobs must be a dense tensor [{rows}, K]: one row per token but the first"
        )
    targets = np.array(tensor.data, np.int64)
    if targets.size != shape[0] * shape[1]:
        raise RequestError(
            f"target_prompt_logprobs holds {targets.size} values; its shape {list(shape)} says otherwise"
        )
    if targets.size and not NOTHING_ASKED <= targets.min() <= targets.max() < vocabulary:
        raise RequestError(
            f"target_prompt_logprobs holds token ids from {targets.min()} to {targets.max()}; the model knows 0 to "
            f"{vocabulary - 1}, and {NOTHING_ASKED} asks for nothing"
        )
    return targets.reshape(shape)


def _top_k(field: str, value: int, vocabulary: int) -> int:
    limit = min(MAX_TOP, vocabulary)
    if not 0 <= value <= limit:
        raise RequestError(f"{field} is {value}; it must be 0 (off) to {limit}")
    return value


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


def _check_loss_inputs(field: str, datum: TrainingDatum, loss_name: str, loss: Loss, vocabulary: int) -> None:
    required = ("target_tokens", *loss.required)
    known = (*required, *loss.optional)
    for name in required:
        if name not in datum.inputs:
            raise RequestError(f"{field} lacks {name!r}; {loss_name} needs {', '.join(required)}")
    _check_targets(f"{field}['target_tokens']", datum, loss_name, vocabulary)
    for name, values in datum.inputs.items():
        if name not in known:
            raise RequestError(f"{field} has {name!r}, which {loss_name} does not take (it takes {', '.join(known)})")
        if values.shape != datum.target_shape:
            raise RequestError(
                f"{field}[{name!r}] has {_shape(values.shape)} values and target_tokens {_shape(datum.target_shape)}: "
                f"shapes must be equal"
            )
        if not np.isfinite(values).all():
            raise RequestError(f"{field}[{name!r}] holds NaN or infinity: it would ruin the weights")


def _check_targets(field: str, datum: TrainingDatum, loss_name: str, vocabulary: int) -> None:
    targets, length = datum.inputs["target_tokens"], len(datum.tokens)
    if not np.issubdtype(targets.dtype, np.integer):
        raise RequestError(f"{field} must be int64, not {targets.dtype}")
    if targets.ndim > 1 and loss_name != MANY_TARGETS:
        raise RequestError(f"{field} has several targets per token; only {MANY_TARGETS} takes them")
    if len(targets) != length:
        raise RequestError(f"{field} has {len(targets)} values and model_input {length} tokens: lengths must be equal")
    _check_tokens(field, targets.ravel().tolist(), vocabulary, targets.size)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


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
