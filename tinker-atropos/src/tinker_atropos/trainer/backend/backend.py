"""The only module that uses the tinker SDK: deadlines on every call, and errors in this package's vocabulary.

The SDK retries connection errors for up to five minutes, and hangs at startup if the port is dead: hence a deadline
around every future, and a `healthz` check before the first call.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import numpy as np
import tinker
from tinker import types

from tinker_atropos.arrays import Floats, Ints
from tinker_atropos.chat.sampling import Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.errors import BackendError, BackendLostError, RunError
from tinker_atropos.trainer.backend import reachability
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.sdk_calls import answered, gone, gone_or, refused, submitted
from tinker_atropos.trainer.backend.stored_checkpoints import StoredCheckpoints
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.data.divergence import check_gradient, check_loss, check_sample

ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 0.9, 0.95, 1e-8
CLOSE_SECONDS = 3.0
HEALTH_POLL_SECONDS = 0.2
SNAPSHOT = "taking a snapshot to sample from"


@dataclass(frozen=True, slots=True)
class LossCall:
    """A loss of the backend, and its own settings (its clips)."""

    name: types.LossFnType
    config: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdamStep:
    """How one optimizer step moves the weights."""

    learning_rate: float


AdamOf = AdamStep | Callable[[Sequence[Floats]], AdamStep]
"""An optimizer step, or how it follows from the logprobs that forward_backward answers, for each datum."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one optimizer step returned.

    `logprobs` per datum are under the weights before the step, `loss_sum` is a SUM over tokens (Tinker's reduction),
    `sampler` holds the weights after the step, `optimizer_metrics` is what the backend chooses to say about the
    gradient, and `seconds` is how long each of forward_backward, optim_step and snapshot was awaited: they run back to
    back, so the three add up to the step.
    """

    logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
    optimizer_metrics: Mapping[str, float]
    seconds: dict[str, float]


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
                    f"tinker.backend_deadline_seconds ({deadline_seconds:g} s): {reason}"
                )
            await asyncio.sleep(HEALTH_POLL_SECONDS)


class Backend:
    """One session with a Tinker backend. Every method raises a RunError when the run cannot continue."""

    def __init__(self, service: tinker.ServiceClient, deadline_seconds: float) -> None:
        self._service = service
        self._deadline = deadline_seconds
        self.stored = StoredCheckpoints(deadline_seconds)

    @classmethod
    async def open(cls, deadline_seconds: float, metadata: Mapping[str, str]) -> "Backend":
        service = tinker.ServiceClient(user_metadata=dict(metadata))
        await submitted("opening a session", deadline_seconds, lambda: _open_session(service))
        return cls(service, deadline_seconds)

    async def context_length(self, base_model: str) -> int | None:
        """The model's longest sequence in tokens, if the backend reports it."""
        capabilities = await submitted(
            "asking for the backend's models",
            self._deadline,
            lambda: tinker.RestClient().get_server_capabilities(),
        )
        lengths = {model.model_name: model.max_context_length for model in capabilities.supported_models}
        return lengths.get(base_model)

    async def create(self, base_model: str, rank: int, seed: int, metadata: Mapping[str, str]) -> "Training":
        client = await submitted(
            f"creating a training run of {base_model!r}",
            self._deadline,
            lambda: self._service.create_lora_training_client(
                base_model, rank=rank, seed=seed, user_metadata=dict(metadata)
            ),
        )
        return Training(client, self._deadline)

    async def load(self, state_path: str, metadata: Mapping[str, str], *, with_optimizer: bool) -> "Training":
        """Continue from a saved state. Raises CheckpointGoneError if the backend no longer has it."""
        create: Callable[..., Any] = self._service.create_training_client_from_state
        if with_optimizer:
            create = self._service.create_training_client_from_state_with_optimizer
        loading = functools.partial(create, state_path, user_metadata=dict(metadata))
        try:
            return Training(await submitted(f"loading {state_path}", self._deadline, loading), self._deadline)
        except RunError as error:
            raise gone_or(error) from error

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

    def __init__(self, client: tinker.TrainingClient, deadline_seconds: float) -> None:
        self._client = client
        self._deadline = deadline_seconds
        self.call: tuple[str, float] | None = None

    @property
    def run_id(self) -> str:
        return str(self._client.model_id)

    async def forward(self, datums: Sequence[Datum]) -> list[Floats]:
        """Logprobs of each datum's targets under the present weights, T-1 of them. No gradient is computed."""
        future = self._client.forward([_to_score(datum) for datum in datums], "cross_entropy")
        return _logprobs(await self._wait(future, "forward"))

    async def step(self, datums: Sequence[Datum], loss: LossCall, adam: AdamOf) -> StepOutput:
        """One optimizer step and the snapshot after it. `adam` may depend on what forward_backward answers.

        If it does not, all three requests are submitted before the first is awaited: they land in one clock cycle of
        the backend. Raises DivergedError if the loss, the gradient or a trained token's logprob is not a finite number.
        """
        content = [to_tinker(datum) for datum in datums]
        begun = time.perf_counter()  # what comes before is the trainer's own work
        futures = [self._client.forward_backward(content, loss.name, dict(loss.config) or None)]
        if isinstance(adam, AdamStep):
            futures += self._update(adam)
        try:
            output = await self._wait(futures[0], "forward_backward")
            passed = time.perf_counter()
            logprobs, loss_sum = _logprobs(output), float(output.metrics["loss:sum"])
            check_loss(loss_sum, (row[datum.trained_T] for row, datum in zip(logprobs, datums, strict=True)))
            if not isinstance(adam, AdamStep):
                futures += self._update(adam(logprobs))
            metrics = (await self._wait(futures[1], "optim_step")).metrics or {}
            check_gradient(metrics)
            updated = time.perf_counter()
            sampler = self._sampler(await self._wait(futures[2], SNAPSHOT))
        finally:
            for future in futures:  # what is not done by now must not continue after a failed call
                future.future().cancel()
        return StepOutput(
            logprobs=logprobs,
            loss_sum=loss_sum,
            sampler=sampler,
            optimizer_metrics=metrics,
            seconds={
                "forward_backward": passed - begun,
                "optim_step": updated - passed,
                "snapshot": time.perf_counter() - updated,
            },
        )

    def _update(self, adam: AdamStep) -> tuple[Any, Any]:
        params = types.AdamParams(learning_rate=adam.learning_rate, beta1=ADAM_BETA1, beta2=ADAM_BETA2, eps=ADAM_EPS)
        return self._client.optim_step(params), self._client.save_weights_and_get_sampling_client()

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
        return TinkerSampler(client, self._deadline, self.run_id)

    async def _wait(self, future: Any, doing: str) -> Any:
        self.call = (doing, time.monotonic())
        try:
            return await answered(doing, self._deadline, future)
        except BackendLostError as error:
            error.training_run_id = self.run_id
            raise
        finally:
            self.call = None


class TinkerSampler:
    """A Sampler over one snapshot."""

    def __init__(self, client: tinker.SamplingClient, deadline_seconds: float, training_run_id: str) -> None:
        self._client = client
        self._deadline = deadline_seconds
        self._training_run_id = training_run_id

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        params = types.SamplingParams(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            stop=settings.stop,
            seed=settings.seed,
        )
        # Cancelling this wait cancels the request at the backend.
        response = await self._answer("sampling", self._client.sample(_prompt(prompt_T), n, params))
        samples = [_sample(sequence) for sequence in response.sequences]
        for sample in samples:
            check_sample(sample.logprobs_T)
        return samples

    async def logprobs(self, tokens_T: Ints) -> Floats:
        answer = await self._answer("computing logprobs", self._client.compute_logprobs(_prompt(tokens_T)))
        return np.array([np.nan if logprob is None else logprob for logprob in answer], np.float64)

    async def _answer(self, doing: str, future: Any) -> Any:
        try:
            return await answered(doing, self._deadline, future)
        except BackendLostError as error:
            cause = error.__cause__ or error
            if refused(cause) and not gone(cause):
                raise SampleRefusedError(str(error)) from error
            error.training_run_id = self._training_run_id
            raise


def to_tinker(datum: Datum) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.input_T.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(datum.target_T),
            "logprobs": types.TensorData.from_numpy(datum.logprobs_T.astype(np.float32)),
            "advantages": types.TensorData.from_numpy(datum.advantages_T.astype(np.float32)),
        },
    )


def _to_score(datum: Datum) -> types.Datum:
    """For the logprobs of its targets only."""
    weights_T = datum.trained_T.astype(np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.input_T.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(datum.target_T),
            "weights": types.TensorData.from_numpy(weights_T),
        },
    )


def _logprobs(output: Any) -> list[Floats]:
    return [np.asarray(row["logprobs"].to_numpy(), np.float64) for row in output.loss_fn_outputs]


def _prompt(tokens_T: Ints) -> types.ModelInput:
    return types.ModelInput.from_ints(tokens_T.tolist())


def _sample(sequence: types.SampledSequence) -> Sample:
    tokens_T = np.asarray(sequence.tokens, np.int64)
    logprobs_T = np.asarray(sequence.logprobs, np.float64)
    return Sample(tokens_T, logprobs_T, "length" if sequence.stop_reason == "length" else "stop")
