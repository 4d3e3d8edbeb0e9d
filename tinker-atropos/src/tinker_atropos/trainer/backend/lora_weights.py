"""The weights being trained, and what a policy step asks of the backend: a gradient and an optimizer step for each
minibatch, then a snapshot.

The gradient is the policy loss's. Where a teacher named its K likeliest tokens, that of a cross-entropy is added by a
second request, as tinker-cookbook's distillation.sdft computes it (arXiv:2601.19897): with w the teacher's
probabilities of them, divided by their sum, and p the trainer's,

    distill_coefficient * sum over K of -w log p        for each trained token

which has the gradient of the forward KL(w || p). Gradients accumulate until the optimizer's step.
"""

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tinker
from tinker import types

from rl_contract.policy_losses import POLICY_LOSSES, LossName
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Floats, Ints, SampleRefusedError
from tinker_atropos.errors import BackendLostError, ConfigError, WithdrawnError
from tinker_atropos.trainer.backend.answers import HEARD, SAMPLING, Patience, is_full
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.sdk_calls import (
    Request,
    TinkerSampler,
    answered,
    gone,
    refused,
    settled,
    submitted,
    untaken,
)
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.datums import Datum, loss_config, trained_tokens
from tinker_atropos.trainer.data.divergence import check_gradient, check_loss
from tinker_atropos.trainer.data.groups import TeacherTopK

ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 0.9, 0.95, 1e-8
SNAPSHOT = "taking a snapshot to sample from"
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one or several optimizer steps returned.

    `logprobs` per datum are under the weights before its optimizer step, as are those of its teacher's tokens
    (`teacher_logprobs`, of taught datums only, [T, K]); `loss_sum` is a SUM over tokens (Tinker's reduction), `sampler`
    holds the weights after the last step (older ones if a stop has withdrawn the snapshot), `optimizer_metrics` is what
    the backend chooses to say about each gradient, and `seconds` is how long forward_backward, optim_step and snapshot
    were awaited: they run back to back, so the three add up to the step.
    """

    logprobs: list[Floats]
    teacher_logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
    optimizer_metrics: Sequence[Mapping[str, float]]
    seconds: dict[str, float]


class SubmittedUpdate(NamedTuple):
    """The requests of one optimizer step: for the policy loss and for the cross-entropy to the teacher, if they have
    a gradient (one of them has), and for the step.
    """

    policy: Request | None
    teacher: Request | None
    optimizer: Request


class Training:
    """The weights being trained. After a failed call, the fate of those behind it in the SDK's queue is unknown:
    training has to be reopened from a saved state (BackendLostError), or ends.

    `settings` are the run's: the loss and Adam's settings are the same at each step. `used` counts what is charged
    for. `call` is the backend call in progress, and when it began (time.monotonic()).
    """

    def __init__(self, client: tinker.TrainingClient, settings: TrainerSettings, used: TokenUse | None = None) -> None:
        self._client = client
        self._settings = settings
        self._patience = Patience.of(settings)
        self.used = used or TokenUse()
        self.call: tuple[str, float] | None = None
        self._base: Sampler | None = None
        self._latest: Sampler | None = None

    @property
    def run_id(self) -> str:
        return str(self._client.model_id)

    async def forward(self, datums: Sequence[Datum]) -> list[Floats]:
        """Logprobs of each datum's targets under the present weights, T-1 of them. No gradient is computed."""
        self.used.prefill += sum(len(datum.input_T) for datum in datums)
        scored = [to_score(datum) for datum in datums]
        request = Request(lambda: self._client.forward(scored, "cross_entropy"), parts=self._parts(scored))
        return _logprobs(await self._wait("forward", request))

    async def check_loss(self, probe_T: Ints) -> None:
        """Compute the loss of a few tokens, without a gradient. Raises ConfigError if the backend refuses the loss."""
        loss = self._settings.loss
        config = loss_config(self._settings)
        request = Request(lambda: self._client.forward([probe(probe_T, loss)], loss, config))
        try:
            await self._wait(f"computing the loss {loss}", request)
        except BackendLostError as error:
            if not refused(error):
                raise
            raise ConfigError(
                f"trainer.loss is {loss!r}, and the backend refuses it: {error}. Choose a loss that it has; every "
                f"backend has {' and '.join(name for name, row in POLICY_LOSSES.items() if row.everywhere)}"
            ) from error

    async def step(self, minibatches: Sequence[Sequence[Datum]], learning_rate: float) -> StepOutput:
        """An optimizer step for each minibatch, and the snapshot after the last one.

        All requests are submitted before the first is awaited: those of an optimizer step land in one clock cycle of
        the backend. Raises DivergedError if a loss, a gradient or a trained token's logprob is not a finite number,
        ConfigError if the backend refuses what a teacher said, and WithdrawnError if the weights are still those before
        the step.
        """
        settings = self._settings
        contents = [
            (to_policy(datums, settings.loss), to_teacher(datums, settings.distill_coefficient))
            for datums in minibatches
        ]
        clock = Laps()
        updates = [
            self._submitted(policy, teacher, self._adam(learning_rate, trained_tokens(datums)))
            for (policy, teacher), datums in zip(contents, minibatches, strict=True)
        ]
        snapshot = Request(self._client.save_weights_and_get_sampling_client)
        requests = [*(each for update in updates for each in update if each), snapshot]
        for n, request in enumerate(requests, 1):
            request.behind = requests[n:]
        sent = [datum for policy, teacher in contents for datum in (*policy, *teacher)]
        self.used.train += sum(datum.model_input.length for datum in sent)
        try:
            return await self._answers(minibatches, updates, snapshot, clock)
        except WithdrawnError as error:
            if any(update.optimizer.future.future().exception() is None for update in updates):
                raise BackendLostError(f"{error}, in the middle of a step") from error
            raise
        finally:
            for request in requests:
                request.future.future().cancel()  # what is not done by now must not continue after a failed call

    def _adam(self, learning_rate: float, tokens: int) -> types.AdamParams:
        """Of an optimizer step whose loss is a sum over so many tokens."""
        settings = self._settings
        return types.AdamParams(
            learning_rate=learning_rate,
            beta1=ADAM_BETA1,
            beta2=ADAM_BETA2,
            eps=ADAM_EPS,
            weight_decay=settings.weight_decay,
            # 0: no clipping, for Tinker too
            grad_clip_norm=settings.grad_clip_norm * (tokens if settings.grad_clip_scale == "mean" else 1),
        )

    def _submitted(
        self, policy: list[types.Datum], teacher: list[types.Datum], adam: types.AdamParams
    ) -> SubmittedUpdate:
        return SubmittedUpdate(
            self._gradient_of(policy, self._settings.loss, loss_config(self._settings)) if policy else None,
            self._gradient_of(teacher, "cross_entropy") if teacher else None,
            Request(lambda: self._client.optim_step(adam), trains=True),
        )

    def _gradient_of(self, datums: list[types.Datum], *loss: Any) -> Request:
        parts = self._parts(datums)
        return Request(lambda: self._client.forward_backward(datums, *loss), trains=True, parts=parts)

    def _parts(self, datums: list[types.Datum]) -> int:
        """How many requests the SDK makes of them."""
        return len(list(self._client._chunked_requests_generator(datums)))  # noqa: SLF001 -- it tells nobody

    async def _answers(
        self,
        minibatches: Sequence[Sequence[Datum]],
        updates: Sequence[SubmittedUpdate],
        snapshot: Request,
        clock: "Laps",
    ) -> StepOutput:
        logprobs: list[Floats] = []
        teacher_logprobs: list[Floats] = []
        loss_sum, metrics = 0.0, []
        for datums, update in zip(minibatches, updates, strict=True):
            minibatch_loss, policy_rows, teacher_rows = await self._gradient(datums, update)
            clock.lap("forward_backward")
            trained = zip(policy_rows, datums, strict=True)
            check_loss(minibatch_loss, (row[datum.trained_T] for row, datum in trained))
            metrics.append((await self._wait("optim_step", update.optimizer)).metrics or {})
            check_gradient(metrics[-1])
            clock.lap("optim_step")
            logprobs += policy_rows
            teacher_logprobs += teacher_rows
            loss_sum += minibatch_loss
        try:
            self._latest = self._sampler(await self._wait(SNAPSHOT, snapshot))
        except WithdrawnError:  # nobody samples any more, and the step is trained
            if self._latest is None:
                raise
        clock.lap("snapshot")
        return StepOutput(logprobs, teacher_logprobs, loss_sum, self._latest, metrics, clock.seconds)

    async def _gradient(
        self, datums: Sequence[Datum], asked: SubmittedUpdate
    ) -> tuple[float, list[Floats], list[Floats]]:
        """The loss, and the logprobs of the datums and of the taught ones' teacher's tokens. See `StepOutput`."""
        outputs = [await self._wait("forward_backward", asked.policy)] if asked.policy else []
        logprobs, teacher_logprobs = [row for output in outputs for row in _logprobs(output)], []
        if asked.teacher:
            outputs.append(await self._taught(asked.teacher))
            rows = _logprobs(outputs[-1])
            logprobs = logprobs or [row_TK[:, 0] for row_TK in rows]  # if all are taught, and nothing else
            found = zip(rows, taught(datums), strict=True)
            teacher_logprobs = [row_TK[:, 1 : 1 + teacher.tokens_TK.shape[1]] for row_TK, (_, teacher) in found]
        return sum(float(output.metrics["loss:sum"]) for output in outputs), logprobs, teacher_logprobs

    async def _taught(self, request: Request) -> Any:
        try:
            return await self._wait("forward_backward to a teacher's top-k", request)
        except BackendLostError as error:
            if not refused(error) or gone(error) or is_full(str(error)):
                raise
            raise ConfigError(
                f"the backend refuses the cross-entropy to a teacher's top-k, which has several targets per token: "
                f"{error}. Let the teacher score the sampled tokens only (env.teacher_top_k: 1), or leave it out"
            ) from error

    async def base_logprobs(self, base_model: str, rows: Sequence[Ints]) -> list[Floats]:
        """Logprob of each row's tokens under the model without an adapter, NaN for the first of a row.

        A row that the backend refuses to score (it leaves no room for one more token) is NaN altogether. Raises
        SampleRefusedError if the backend does not sample from its base model at all, or what the other methods raise.
        """
        self.call = (f"scoring with the base model {base_model!r}", time.monotonic())
        try:
            if self._base is None:
                self._base = await self._base_sampler(base_model, rows[0][:2])
            return await asyncio.gather(*(_scored(self._base, row_T) for row_T in rows))
        finally:
            self.call = None

    async def _base_sampler(self, base_model: str, probe_T: Ints) -> Sampler:
        """Whatever else is lost with it, the next call to the session finds out."""
        opening = functools.partial(tinker.SamplingClient.create, self._client.holder, base_model=base_model)
        try:
            doing = f"opening a sampler of the base model {base_model!r}"
            sampler = self._sampler(await submitted(doing, self._patience, opening, opening=False))
            await sampler.logprobs(probe_T)  # some servers look at the name only now
        except BackendLostError as error:
            error.training_run_id = self.run_id
            if refused(error):
                raise SampleRefusedError(str(error)) from error
            raise
        return sampler

    async def snapshot(self) -> Sampler:
        request = Request(self._client.save_weights_and_get_sampling_client)
        self._latest = self._sampler(await self._wait(SNAPSHOT, request))
        return self._latest

    async def save_state(self, name: str, metadata: Mapping[str, str], ttl_seconds: int | None) -> str:
        """Save weights and optimizer; returns the path that training can continue from. TTL None: kept forever."""
        save = functools.partial(self._client.save_state, name, ttl_seconds, user_metadata=dict(metadata))
        return str((await self._wait(f"saving state {name}", Request(save, of_a_step=False))).path)

    async def save_sampler(self, name: str, metadata: Mapping[str, str], ttl_seconds: int | None = None) -> str:
        """Save weights for inference; returns their path. TTL None: kept forever."""
        save = functools.partial(self._client.save_weights_for_sampler, name, ttl_seconds, dict(metadata))
        return str((await self._wait(f"saving sampler weights {name}", Request(save, of_a_step=False))).path)

    def _sampler(self, client: tinker.SamplingClient) -> Sampler:
        return TinkerSampler(client, self._patience._replace(asked=SAMPLING), self.run_id, self.used)

    async def _wait(self, doing: str, request: Request) -> Any:
        self.call = (doing, time.monotonic())
        try:
            return await answered(doing, self._patience, request)
        except WithdrawnError:
            await self._give_numbers_back((request, *request.behind))
            raise
        except BackendLostError as error:
            error.training_run_id = self.run_id
            raise
        finally:
            self.call = None

    async def _give_numbers_back(self, requests: Sequence[Request]) -> None:
        """A backend does a model's requests in the order of their numbers, and may wait for one that never came. So
        what is sent next gets those of the withdrawn ones, unless some parts of these were taken.
        """
        await settled(requests)
        while self._client._turn_counter < self._client._request_id_counter:  # noqa: SLF001 -- parts are still queued
            await asyncio.sleep(LOOK_SECONDS)
        unused = sum(request.parts for request in requests if untaken(request.future.future().exception()))
        if unused == HEARD.untaken:
            HEARD.untaken = 0
            self._client._request_id_counter -= unused  # noqa: SLF001 -- it counts on by itself, whatever was sent
            self._client._turn_counter -= unused  # noqa: SLF001


class Laps:
    """Seconds by name, without gaps: from the first submission on. What comes before is the trainer's own work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def _logprobs(output: Any) -> list[Floats]:
    return [np.asarray(row["logprobs"].to_numpy(), np.float64) for row in output.loss_fn_outputs]


async def _scored(sampler: Sampler, tokens_T: Ints) -> Floats:
    try:
        return await sampler.logprobs(tokens_T)
    except SampleRefusedError:
        return np.full(len(tokens_T), np.nan)


def to_policy(datums: Sequence[Datum], loss: LossName) -> list[types.Datum]:
    """What the policy loss is computed of: nothing if it has no gradient, and a teacher says all that is to be
    learned.
    """
    pulls_back = POLICY_LOSSES[loss].pulls_back
    if not pulls_back and all(datum.teacher is not None and not datum.advantages_T.any() for datum in datums):
        return []
    return [to_tinker(datum, loss) for datum in datums]


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
