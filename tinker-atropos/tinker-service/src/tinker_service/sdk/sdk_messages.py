"""The SDK's protobuf messages to and from plain values (tinker/proto/tinker_public.proto, SDK 0.38)."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from tinker_service.model.recordings import Provenance, ProvenanceSpan
from tinker_service.model.sampling.continuations import TopLogprobs
from tinker_service.model.sampling.sample_jobs import SampleAnswer
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
