"""What a policy step asks of the backend: a gradient and an optimizer step for each minibatch, then a snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tinker
from tinker import types

from tinker_atropos.arrays import Ints
from tinker_atropos.config.policy_losses import POLICY_LOSSES, LossName
from tinker_atropos.config.tinker_section import TinkerSection
from tinker_atropos.trainer.data.datums import Datum, loss_config

ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 0.9, 0.95, 1e-8


@dataclass(frozen=True, slots=True)
class LossCall:
    """A loss of the backend, and its own settings (its clips)."""

    name: LossName
    config: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_run(cls, config: TinkerSection) -> "LossCall":
        return cls(config.loss, loss_config(config) or {})


@dataclass(frozen=True, slots=True)
class AdamStep:
    """How one optimizer step moves the weights. Tinker's AdamParams; `grad_clip_norm` 0: no clipping."""

    learning_rate: float
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


def submitted_step(
    client: tinker.TrainingClient, loss: LossCall, minibatches: Sequence[Sequence[Datum]], adam: AdamStep
) -> list[Any]:
    """The SDK's futures: of a gradient and an optimizer step for each minibatch, one after the other, and of the
    snapshot after the last.
    """
    content = [[to_tinker(datum, loss.name) for datum in datums] for datums in minibatches]
    params = types.AdamParams(
        learning_rate=adam.learning_rate,
        beta1=ADAM_BETA1,
        beta2=ADAM_BETA2,
        eps=ADAM_EPS,
        weight_decay=adam.weight_decay,
        grad_clip_norm=adam.grad_clip_norm,
    )
    futures: list[Any] = []
    for datums in content:
        futures.append(client.forward_backward(datums, loss.name, dict(loss.config) or None))
        futures.append(client.optim_step(params))
    return [*futures, client.save_weights_and_get_sampling_client()]


def to_tinker(datum: Datum, loss: LossName) -> types.Datum:
    """With what the loss takes."""
    inputs: dict[str, npt.NDArray[Any]] = {
        "target_tokens": datum.target_T,
        "logprobs": datum.logprobs_T.astype(np.float32),
        "advantages": datum.advantages_T.astype(np.float32),
    }
    if POLICY_LOSSES[loss].marks_sequence:
        inputs["sequence_ratio_mask"] = datum.trained_T.astype(np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.input_T.tolist()),
        loss_fn_inputs={name: types.TensorData.from_numpy(values) for name, values in inputs.items()},
    )


def probe(tokens_T: Ints, loss: LossName) -> types.Datum:
    """Any tokens, to see whether a backend takes the loss."""
    zeros_T = np.zeros(len(tokens_T) - 1)
    trained_T, steps_T = np.ones(len(zeros_T), np.bool_), np.zeros(len(zeros_T), np.int64)
    datum = Datum(tokens_T[:-1], tokens_T[1:], zeros_T, zeros_T, trained_T, steps_T, None, 0.0, 0, 0)
    return to_tinker(datum, loss)


def to_score(datum: Datum) -> types.Datum:
    """For the logprobs of its targets only."""
    weights_T = datum.trained_T.astype(np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.input_T.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(datum.target_T),
            "weights": types.TensorData.from_numpy(weights_T),
        },
    )
