"""Whatever a client sends becomes a request that can be trained, or an error message."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.response_conv import deserialize_forward_backward_output

from tinker_service.model.losses import LOSSES
from tinker_service.model.training import LossOutput
from tinker_service.sdk.sdk_messages import check_forward_backward, loss_output_message, parse_forward_backward
from tinker_service.service_errors import RequestError

VOCABULARY, CONTEXT = 512, 16

some_bytes = st.binary(max_size=40) | st.lists(st.integers(0, 600), max_size=6).map(
    lambda values: np.array(values, np.int64).tobytes()
)
csr = st.builds(pb.SparseCsr, values=some_bytes, crow_indices=some_bytes, col_indices=some_bytes)
tensors = st.builds(
    pb.Tensor,
    dense=some_bytes,
    dtype=st.integers(0, 4),
    shape=st.lists(st.integers(-2, 6) | st.just(2**40), max_size=3),
) | st.builds(pb.Tensor, sparse_csr=csr, dtype=st.integers(0, 4), shape=st.lists(st.integers(-2, 6), max_size=3))
tokens = some_bytes.map(lambda data: pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=data)))
names = st.sampled_from(["target_tokens", "weights", "logprobs", "advantages", "other"])
data = st.builds(pb.Datum, model_input=st.lists(tokens, max_size=2), loss_fn_inputs=st.dictionaries(names, tensors))
requests = st.builds(
    pb.ForwardBackwardRequest,
    model_id=st.text(max_size=5),
    loss_fn=st.sampled_from([*LOSSES, "other"]),
    data=st.lists(data, max_size=3),
)


@given(requests.map(lambda message: message.SerializeToString()) | st.binary(max_size=60))
def test_a_body_is_parsed_or_refused_with_a_message(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        check_forward_backward(parse_forward_backward(body), VOCABULARY, CONTEXT)


@given(st.lists(st.sampled_from([(3,), (1,), (2, 2), (3, 1)]), min_size=1, max_size=6))
def test_outputs_of_any_shapes_arrive_in_order(shapes: list[tuple[int, ...]]) -> None:
    arrays = [np.full(shape, index, np.float32) for index, shape in enumerate(shapes)]
    output = deserialize_forward_backward_output(loss_output_message(LossOutput(arrays, [2 * a for a in arrays])))
    for array, record in zip(arrays, output.loss_fn_outputs, strict=True):
        assert record["logprobs"].shape == list(array.shape)
        np.testing.assert_array_equal(record["logprobs"].to_numpy().reshape(array.shape), array)
        np.testing.assert_array_equal(record["elementwise_loss"].to_numpy().reshape(array.shape), 2 * array)
    assert output.metrics["loss:sum"] == pytest.approx(sum(2 * float(array.sum()) for array in arrays))
