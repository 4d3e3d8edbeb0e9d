"""What tests do with the unmodified SDK: models in training, their data, and steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tinker
from tinker import types

WAIT = 60


def new_model(client: tinker.ServiceClient, rank: int = 4, seed: int = 0, **options: Any) -> tinker.TrainingClient:
    return client.create_lora_training_client("bundled", rank=rank, seed=seed, **options).result(WAIT)


def datum(tokens: Sequence[int], **inputs: Any) -> types.Datum:
    return types.Datum(model_input=types.ModelInput.from_ints(list(tokens)), loss_fn_inputs=inputs)


def train(
    model: tinker.TrainingClient, data: Sequence[types.Datum], loss: Any = "cross_entropy", rate: float = 1e-2
) -> list[np.ndarray]:
    """One step, both of its requests submitted before either is awaited. Returns each datum's logprobs."""
    forward_backward = model.forward_backward(list(data), loss)
    step = model.optim_step(types.AdamParams(learning_rate=rate))
    output = forward_backward.result(WAIT)
    step.result(WAIT)
    return [record["logprobs"].to_numpy() for record in output.loss_fn_outputs]
