"""A session of the tinker SDK: deadlines on every call, and errors in this package's vocabulary.

The SDK retries connection errors for up to five minutes, and hangs at startup if the port is dead: hence a deadline
around every future, and a `healthz` check before the first call.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import numpy as np
import tinker

from rl_contract.policy_losses import POLICY_LOSSES
from tinker_atropos.chat.sampling import Floats, Ints, SampleRefusedError
from tinker_atropos.errors import BackendError, BackendLostError, ConfigError, RunError
from tinker_atropos.trainer.backend import reachability
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.sdk_calls import TinkerSampler, answered, gone, gone_or, refused, submitted
from tinker_atropos.trainer.backend.step_requests import (
    AdamStep,
    LossCall,
    SubmittedStep,
    SubmittedUpdate,
    probe,
    step_content,
    submitted_step,
    taught,
    to_score,
)
from tinker_atropos.trainer.backend.stored_checkpoints import StoredCheckpoints
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.data.divergence import check_gradient, check_loss

ALL_LAYERS: Mapping[str, bool] = MappingProxyType({"train_attn": True, "train_mlp": True, "train_unembed": True})
CLOSE_SECONDS = 3.0
HEALTH_POLL_SECONDS = 0.2
SNAPSHOT = "taking a snapshot to sample from"


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one or several optimizer steps returned.

    `logprobs` per datum are under the weights before its optimizer step, as are those of its teacher's tokens
    (`teacher_logprobs`, of taught datums only, [T, K]); `loss_sum` is a SUM over tokens (Tinker's reduction), `sampler`
    holds the weights after the last step, `optimizer_metrics` is what the backend chooses to say about each gradient,
    and `seconds` is how long forward_backward, optim_step and snapshot were awaited: they run back to back, so the
    three add up to the step.
    """

    logprobs: list[Floats]
    teacher_logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
    optimizer_metrics: Sequence[Mapping[str, float]]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Gradient:
    """What the requests of one optimizer step's gradient returned. See `StepOutput`."""

    logprobs: list[Floats]
    teacher_logprobs: list[Floats]
    loss_sum: float


async def wait_for_backend(base_url: str, deadline_seconds: float) -> None:
    """Wait until the backend answers `healthz`. Raises BackendError after the deadline."""
    url = f"{base_url.rstrip('/')}/api/v1/healthz"
    give_up = time.monotonic() + deadline_seconds
    async with httpx.AsyncClient(timeout=min(5.0, deadline_seconds)) as client:
        while True:
            try:
                response = await client.get(url)
                if response.status_code < 500:
                    return
                reason = f"HTTP {response.status_code}"
            except (httpx.TransportError, httpx.InvalidURL) as error:
                reason = reachability.reason(error, urlsplit(base_url).hostname or "")
            if time.monotonic() >= give_up:
                raise BackendError(
                    f"the backend at TINKER_BASE_URL ({reachability.shown(base_url)}) did not answer within "
                    f"trainer.backend_deadline_seconds ({deadline_seconds:g} s): {reason}"
                )
            await asyncio.sleep(HEALTH_POLL_SECONDS)


class TinkerBackend:
    """One session with a Tinker backend. Every method raises a RunError when the run cannot continue."""

    def __init__(self, service: tinker.ServiceClient, deadline_seconds: float, used: TokenUse | None = None) -> None:
        self._service = service
        self._deadline = deadline_seconds
        self._used = used or TokenUse()
        self.stored = StoredCheckpoints(deadline_seconds)

    @classmethod
    async def open(
        cls, deadline_seconds: float, metadata: Mapping[str, str], used: TokenUse | None = None
    ) -> "TinkerBackend":
        """`used` counts what all sessions of a process use."""
        service = tinker.ServiceClient(user_metadata=dict(metadata))
        await submitted("opening a session", deadline_seconds, lambda: _open_session(service))
        return cls(service, deadline_seconds, used)

    async def context_length(self, base_model: str) -> int | None:
        """The model's longest sequence in tokens, if the backend reports it."""
        capabilities = await submitted(
            "asking for the backend's models",
            self._deadline,
            lambda: tinker.RestClient().get_server_capabilities(),
        )
        lengths = {model.model_name: model.max_context_length for model in capabilities.supported_models}
        return lengths.get(base_model)

    async def create(
        self,
        base_model: str,
        rank: int,
        seed: int,
        metadata: Mapping[str, str],
        layers: Mapping[str, bool] = ALL_LAYERS,
    ) -> "Training":
        """`layers`: which of them the adapter is on. A refusal of a part of them names the fields."""
        off = [f"trainer.{name}" for name, trained in layers.items() if not trained]
        client = await submitted(
            f"creating a training run of {base_model!r}" + (f" without {', '.join(off)}" if off else ""),
            self._deadline,
            lambda: self._service.create_lora_training_client(
                base_model,
                rank=rank,
                seed=seed,
                train_attn=layers["train_attn"],
                train_mlp=layers["train_mlp"],
                train_unembed=layers["train_unembed"],
                user_metadata=dict(metadata),
            ),
        )
        return Training(client, self._deadline, self._used)

    async def load(self, state_path: str, metadata: Mapping[str, str], *, with_optimizer: bool) -> "Training":
        """Continue from a saved state. Raises CheckpointGoneError if the backend no longer has it."""
        create: Callable[..., Any] = self._service.create_training_client_from_state
        if with_optimizer:
            create = self._service.create_training_client_from_state_with_optimizer
        loading = functools.partial(create, state_path, user_metadata=dict(metadata))
        try:
            client = await submitted(f"loading {state_path}", self._deadline, loading)
        except RunError as error:
            raise gone_or(error) from error
        return Training(client, self._deadline, self._used)

    async def close(self, status: Literal["success", "errored", "interrupted"], seconds: float = CLOSE_SECONDS) -> None:
        """Tell the backend that the session is over, and end its threads' work. No answer is needed."""
        with contextlib.suppress(Exception):  # best effort: the session expires by itself
            closing = self._service.close(status)
            await asyncio.wait_for(asyncio.wrap_future(closing.future()), seconds)


def _open_session(service: tinker.ServiceClient) -> "Future[None]":
    """Open the session now. The SDK waits an hour for an unpaid bill; its own check lets us fail immediately."""
    service._check_accessible()  # noqa: SLF001 -- the only call that does not wait, see above
    holder = service.holder
    no_pause = {"billing_exception_max_pause_duration_sec": 0}
    holder._client_config = holder._client_config.model_copy(update=no_pause)  # noqa: SLF001 -- it has no other setting
    opened: Future[None] = Future()
    opened.set_result(None)
    return opened


class Training:
    """The weights being trained. After a failed call, the fate of those behind it in the SDK's queue is unknown:
    training has to be reopened from a saved state (BackendLostError), or ends.

    `call` is the backend call in progress, and when it began (time.monotonic()).
    """

    def __init__(self, client: tinker.TrainingClient, deadline_seconds: float, used: TokenUse | None = None) -> None:
        self._client = client
        self._deadline = deadline_seconds
        self._used = used or TokenUse()
        self.call: tuple[str, float] | None = None
        self._base: Sampler | None = None

    @property
    def run_id(self) -> str:
        return str(self._client.model_id)

    async def forward(self, datums: Sequence[Datum]) -> list[Floats]:
        """Logprobs of each datum's targets under the present weights, T-1 of them. No gradient is computed."""
        self._used.prefill += sum(len(datum.input_T) for datum in datums)
        future = self._client.forward([to_score(datum) for datum in datums], "cross_entropy")
        return _logprobs(await self._wait(future, "forward"))

    async def check_loss(self, loss: LossCall, probe_T: Ints) -> None:
        """Compute a loss of a few tokens, without a gradient. Raises ConfigError if the backend refuses the loss."""
        future = self._client.forward([probe(probe_T, loss.name)], loss.name, dict(loss.config) or None)
        try:
            await self._wait(future, f"computing the loss {loss.name}")
        except BackendLostError as error:
            if not refused(error.__cause__ or error):
                raise
            raise ConfigError(
                f"trainer.loss is {loss.name!r}, and the backend refuses it: {error}. Choose a loss that it has; every "
                f"backend has {' and '.join(name for name, row in POLICY_LOSSES.items() if row.everywhere)}"
            ) from error

    async def step(self, minibatches: Sequence[Sequence[Datum]], loss: LossCall, adam: AdamStep) -> StepOutput:
        """An optimizer step for each minibatch, and the snapshot after the last one.

        All requests are submitted before the first is awaited: those of an optimizer step land in one clock cycle of
        the backend. Raises DivergedError if a loss, a gradient or a trained token's logprob is not a finite number, and
        ConfigError if the backend refuses what a teacher said.
        """
        content = step_content(minibatches, loss)
        clock = Laps()
        submitted_all = submitted_step(self._client, loss, content, adam)
        for datums, asked in zip(minibatches, submitted_all.updates, strict=True):
            sent = [*(datums if asked.policy else ()), *(datum for datum, _ in taught(datums))]
            self._used.train += sum(len(datum.input_T) for datum in sent)
        try:
            return await self._answers(minibatches, submitted_all, clock)
        finally:
            for future in submitted_all.futures:  # what is not done by now must not continue after a failed call
                future.future().cancel()

    async def _answers(self, minibatches: Sequence[Sequence[Datum]], asked: SubmittedStep, clock: "Laps") -> StepOutput:
        logprobs: list[Floats] = []
        teacher_logprobs: list[Floats] = []
        loss_sum, metrics = 0.0, []
        for datums, update in zip(minibatches, asked.updates, strict=True):
            gradient = await self._gradient(datums, update)
            clock.lap("forward_backward")
            trained = zip(gradient.logprobs, datums, strict=True)
            check_loss(gradient.loss_sum, (row[datum.trained_T] for row, datum in trained))
            metrics.append((await self._wait(update.optimizer, "optim_step")).metrics or {})
            check_gradient(metrics[-1])
            clock.lap("optim_step")
            logprobs += gradient.logprobs
            teacher_logprobs += gradient.teacher_logprobs
            loss_sum += gradient.loss_sum
        sampler = self._sampler(await self._wait(asked.snapshot, SNAPSHOT))
        clock.lap("snapshot")
        return StepOutput(logprobs, teacher_logprobs, loss_sum, sampler, metrics, clock.seconds)

    async def _gradient(self, datums: Sequence[Datum], asked: SubmittedUpdate) -> Gradient:
        outputs = [await self._wait(asked.policy, "forward_backward")] if asked.policy else []
        logprobs, teacher_logprobs = [row for output in outputs for row in _logprobs(output)], []
        if asked.teacher:
            outputs.append(await self._taught(asked.teacher))
            rows = _logprobs(outputs[-1])
            logprobs = logprobs or [row_TK[:, 0] for row_TK in rows]  # if all are taught, and nothing else
            found = zip(rows, taught(datums), strict=True)
            teacher_logprobs = [row_TK[:, 1 : 1 + teacher.tokens_TK.shape[1]] for row_TK, (_, teacher) in found]
        return Gradient(logprobs, teacher_logprobs, sum(float(output.metrics["loss:sum"]) for output in outputs))

    async def _taught(self, future: Any) -> Any:
        try:
            return await self._wait(future, "forward_backward to a teacher's top-k")
        except BackendLostError as error:
            cause = error.__cause__ or error
            if not refused(cause) or gone(cause):
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
            sampler = self._sampler(await submitted(doing, self._deadline, opening, opening=False))
            await sampler.logprobs(probe_T)  # some servers look at the name only now
        except BackendLostError as error:
            error.training_run_id = self.run_id
            if refused(error.__cause__ or error):
                raise SampleRefusedError(str(error)) from error
            raise
        return sampler

    async def snapshot(self) -> Sampler:
        return self._sampler(await self._wait(self._client.save_weights_and_get_sampling_client(), SNAPSHOT))

    async def save_state(self, name: str, metadata: Mapping[str, str], ttl_seconds: int | None) -> str:
        """Save weights and optimizer; returns the path that training can continue from. TTL None: kept forever."""
        future = self._client.save_state(name, ttl_seconds=ttl_seconds, user_metadata=dict(metadata))
        return str((await self._wait(future, f"saving state {name}")).path)

    async def save_sampler(self, name: str, metadata: Mapping[str, str], ttl_seconds: int | None = None) -> str:
        """Save weights for inference; returns their path. TTL None: kept forever."""
        future = self._client.save_weights_for_sampler(name, ttl_seconds=ttl_seconds, user_metadata=dict(metadata))
        return str((await self._wait(future, f"saving sampler weights {name}")).path)

    def _sampler(self, client: tinker.SamplingClient) -> Sampler:
        return TinkerSampler(client, self._deadline, self.run_id, self._used)

    async def _wait(self, future: Any, doing: str) -> Any:
        self.call = (doing, time.monotonic())
        try:
            return await answered(doing, self._deadline, future)
        except BackendLostError as error:
            error.training_run_id = self.run_id
            raise
        finally:
            self.call = None


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
