"""The SDK's protobuf messages to and from plain values (tinker/proto/tinker_public.proto, SDK 0.38)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from tinker_atropos.tinker_service.engine import Sampled
from tinker_atropos.tinker_service.errors import RequestError
from tinker_atropos.tinker_service.training import Datum, LossOutput

_DTYPES = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
_STOP_REASONS = {"stop": pb.STOP_REASON_STOP, "length": pb.STOP_REASON_LENGTH}


@dataclass(frozen=True, slots=True)
class ForwardBackwardRequest:
    model_id: str
    seq_id: int
    loss_name: str
    loss_config: Mapping[str, float]
    forward_only: bool
    data: Sequence[Datum]


def parse_forward_backward(body: bytes) -> ForwardBackwardRequest:
    """Raises RequestError for what is no such message, or not plain token sequences."""
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise RequestError(
            "the body is no ForwardBackwardRequest; this service speaks to the tinker SDK 0.38"
        ) from None
    return ForwardBackwardRequest(
        model_id=message.model_id,
        seq_id=message.seq_id,
        loss_name=message.loss_fn,
        loss_config=_loss_config(message),
        forward_only=message.forward_only,
        data=[_datum(index, datum) for index, datum in enumerate(message.data)],
    )


def loss_output_message(output: LossOutput) -> bytes:
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics.update(output.metrics)
    record = message.loss_fn_outputs.add(num_datums=len(output.logprobs))
    for name, arrays in (("logprobs", output.logprobs), ("elementwise_loss", output.losses)):
        field = record.fields[name]
        field.dtype = pb.DTYPE_FLOAT32
        field.data = b"".join(array.tobytes() for array in arrays)
        field.offsets = np.cumsum([0, *(array.nbytes for array in arrays)]).astype(np.int64).tobytes()
    return bytes(message.SerializeToString())


def sample_message(sampled: Sampled) -> bytes:
    message = pb.SampleResponse()
    for continuation in sampled.continuations:
        message.sequences.add(
            stop_reason=_STOP_REASONS[continuation.stop_reason or "length"],
            tokens=np.array(continuation.tokens, np.int32).tobytes(),
            logprobs=np.array(continuation.logprobs, np.float32).tobytes(),
        )
    if sampled.prompt_logprobs is not None:
        message.prompt_logprobs = np.array(sampled.prompt_logprobs, np.float32).tobytes()
    return bytes(message.SerializeToString())


def _loss_config(message: pb.ForwardBackwardRequest) -> dict[str, float]:
    for name, value in message.loss_fn_config_v2.items():
        if value.WhichOneof("value") != "number":
            raise RequestError(f"loss_fn_config.{name} is {value.text!r}; it must be a number")
    return {name: float(value.number) for name, value in message.loss_fn_config_v2.items()}


def _datum(index: int, datum: pb.Datum) -> Datum:
    if any(chunk.WhichOneof("chunk") != "encoded_text" for chunk in datum.model_input):
        raise RequestError(f"data[{index}].model_input holds images or audio; this service takes tokens only")
    chunks = [np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in datum.model_input]
    tokens = np.concatenate([np.empty(0, np.int32), *chunks]).astype(np.int64)
    return Datum(tokens, {name: _array(index, name, tensor) for name, tensor in datum.loss_fn_inputs.items()})


def _array(index: int, name: str, tensor: pb.Tensor) -> npt.NDArray[np.generic]:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.HasField("sparse_csr") or len(tensor.shape) > 1:
        raise RequestError(
            f"data[{index}].loss_fn_inputs[{name!r}] must be a dense list of float32 or int64, one per token"
        )
    return np.frombuffer(tensor.dense, dtype)
