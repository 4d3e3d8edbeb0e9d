"""What a policy step asks of the backend: a gradient and an optimizer step for each minibatch, then a snapshot.

The gradient is the policy loss's. Where a teacher named its K likeliest tokens, that of a cross-entropy is added by a
second request, as tinker-cookbook's distillation.sdft computes it (arXiv:2601.19897): with w the teacher's
probabilities of them, divided by their sum, and p the trainer's,

    distill_coefficient * sum over K of -w log p        for each trained token

which has the gradient of the forward KL(w || p). Gradients accumulate until the optimizer's step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tinker
from tinker import types

from rl_contract.policy_losses import POLICY_LOSSES, LossName
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Ints
from tinker_atropos.trainer.data.datums import Datum, loss_config
from tinker_atropos.trainer.data.groups import TeacherTopK

ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 0.9, 0.95, 1e-8


@dataclass(frozen=True, slots=True)
class LossCall:
    """A loss of the backend, and its own settings (its clips). `teacher_weight` is that of the cross-entropy to a
    teacher.
    """

    name: LossName
    config: Mapping[str, float] = field(default_factory=dict)
    teacher_weight: float = 1.0

    @classmethod
    def of_run(cls, config: TrainerSettings) -> "LossCall":
        return cls(config.loss, loss_config(config) or {}, config.distill_coefficient)

    def is_flat(self, datums: Sequence[Datum]) -> bool:
        """Whether it has no gradient, and a teacher says all that is to be learned."""
        pulls_back = POLICY_LOSSES[self.name].pulls_back
        return not pulls_back and all(datum.teacher is not None and not datum.advantages_T.any() for datum in datums)


@dataclass(frozen=True, slots=True)
class AdamStep:
    """How one optimizer step moves the weights: by its step's learning rate, and the run's settings of Adam."""

    learning_rate: float
    settings: TrainerSettings = field(default_factory=TrainerSettings)

    @property
    def params(self) -> types.AdamParams:
        return types.AdamParams(
            learning_rate=self.learning_rate,
            beta1=ADAM_BETA1,
            beta2=ADAM_BETA2,
            eps=ADAM_EPS,
            weight_decay=self.settings.weight_decay,
            grad_clip_norm=self.settings.grad_clip_norm,  # 0: no clipping, for Tinker too
        )


@dataclass(frozen=True, slots=True)
class SubmittedUpdate:
    """The SDK's futures of one optimizer step: of the policy loss and of the cross-entropy to the teacher, if they have
    a gradient (one of them has), and of the step.
    """

    policy: Any | None
    teacher: Any | None
    optimizer: Any

    @property
    def futures(self) -> Iterator[Any]:
        return (each for each in (self.policy, self.teacher, self.optimizer) if each is not None)


@dataclass(frozen=True, slots=True)
class SubmittedStep:
    """The optimizer steps one after the other, and the snapshot after the last."""

    updates: Sequence[SubmittedUpdate]
    snapshot: Any

    @property
    def futures(self) -> list[Any]:
        return [*(future for update in self.updates for future in update.futures), self.snapshot]


StepContent = Sequence[tuple[list[types.Datum], list[types.Datum]]]
"""For each minibatch: what the policy loss is computed of, and the cross-entropy to the teacher."""


def step_content(minibatches: Sequence[Sequence[Datum]], loss: LossCall) -> StepContent:
    return [(to_policy(datums, loss), to_teacher(datums, loss.teacher_weight)) for datums in minibatches]


def submitted_step(
    client: tinker.TrainingClient, loss: LossCall, content: StepContent, adam: AdamStep
) -> SubmittedStep:
    params = adam.params
    updates = [
        SubmittedUpdate(
            client.forward_backward(policy, loss.name, dict(loss.config) or None) if policy else None,
            client.forward_backward(teacher, "cross_entropy") if teacher else None,
            client.optim_step(params),
        )
        for policy, teacher in content
    ]
    return SubmittedStep(updates, client.save_weights_and_get_sampling_client())


def to_policy(datums: Sequence[Datum], loss: LossCall) -> list[types.Datum]:
    """What the policy loss is computed of: nothing if that had no gradient."""
    return [] if loss.is_flat(datums) else [to_tinker(datum, loss.name) for datum in datums]


def taught(datums: Sequence[Datum]) -> list[tuple[Datum, TeacherTopK]]:
    """The datums of which a teacher spoke, in order."""
    return [(datum, datum.teacher) for datum in datums if datum.teacher is not None]


def to_teacher(datums: Sequence[Datum], weight: float) -> list[types.Datum]:
    """The taught ones as targets of a cross-entropy, [T, 1 + K]: the sampled token without a weight, for its
    logprob, then the teacher's tokens, by their shares. All have the K of the widest: padding has no weight.
    """
    found = taught(datums)
    width = max((teacher.tokens_TK.shape[1] for _, teacher in found), default=0)
    return [_weighted(datum, teacher, width, weight) for datum, teacher in found]


def _weighted(datum: Datum, teacher: TeacherTopK, width: int, weight: float) -> types.Datum:
    length, named = teacher.tokens_TK.shape
    targets_TK = np.zeros((length, 1 + width), np.int64)
    targets_TK[:, 0], targets_TK[:, 1 : 1 + named] = datum.target_T, teacher.tokens_TK
    weights_TK = np.zeros(targets_TK.shape, np.float32)
    weights_TK[:, 1 : 1 + named] = weight * teacher.shares_TK
    return _datum(datum, {"target_tokens": targets_TK, "weights": weights_TK})


def to_tinker(datum: Datum, loss: LossName) -> types.Datum:
    """With what the loss takes."""
    inputs: dict[str, npt.NDArray[Any]] = {
        "target_tokens": datum.target_T,
        "logprobs": datum.logprobs_T.astype(np.float32),
        "advantages": datum.advantages_T.astype(np.float32),
    }
    if POLICY_LOSSES[loss].marks_sequence:
        inputs["sequence_ratio_mask"] = datum.trained_T.astype(np.float32)
    return _datum(datum, inputs)


def _datum(datum: Datum, inputs: Mapping[str, npt.NDArray[Any]]) -> types.Datum:
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
    return _datum(datum, {"target_tokens": datum.target_T, "weights": datum.trained_T.astype(np.float32)})
