"""The only door to the tinker SDK: deadlines on every call, and errors in this package's vocabulary.

The SDK retries connection errors for up to five minutes, and hangs on a dead port at its start: hence a deadline
around every future, and a look at `healthz` before the first call.
"""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import httpx
import numpy as np
import tinker
from tinker import types

from tinker_atropos.errors import BackendError
from tinker_atropos.trainer.backend_errors import refused, translate
from tinker_atropos.trainer.checkpoints import Checkpoint
from tinker_atropos.trainer.datums import Datum
from tinker_atropos.trainer.policy import Sample, Sampler, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.rollouts import Floats, Ints

T = TypeVar("T")

ADAM_BETA1, ADAM_BETA2, ADAM_EPS = 0.9, 0.95, 1e-8
CHECKPOINT_PAGE = 100
CLOSE_SECONDS = 3.0
HEALTH_POLL_SECONDS = 0.2

_KINDS: Mapping[str, Literal["state", "sampler"]] = {"training": "state", "sampler": "sampler"}


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one optimizer step returned.

    `logprobs` per datum are under the weights before the step, `loss_sum` is a SUM over tokens (Tinker's reduction),
    `sampler` holds the weights after the step, and `seconds` says how long each of forward_backward, optim_step and
    snapshot was waited for: they run back to back, so the three add up to the step.
    """

    logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
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
                reason = f"{type(error).__name__}: {error}"
            if time.monotonic() >= give_up:
                raise BackendError(
                    f"the backend at TINKER_BASE_URL ({base_url}) did not answer within "
                    f"tinker.backend_deadline_seconds ({deadline_seconds:g} s): {reason}"
                )
            await asyncio.sleep(HEALTH_POLL_SECONDS)


class Backend:
    """One session with a Tinker backend. Every method raises a RunError when the run cannot go on."""

    def __init__(self, service: tinker.ServiceClient, deadline_seconds: float) -> None:
        self._service = service
        self._deadline = deadline_seconds

    @classmethod
    async def open(cls, deadline_seconds: float, metadata: Mapping[str, str]) -> "Backend":
        service = tinker.ServiceClient(user_metadata=dict(metadata))
        backend = cls(service, deadline_seconds)
        # The SDK waits an hour for a bill to be paid. Its own check answers at once.
        await backend._opened("opening a session", lambda: _done(service._check_accessible()))  # noqa: SLF001 -- see above
        return backend

    async def context_length(self, base_model: str) -> int | None:
        """The model's longest sequence in tokens, when the backend says it."""
        capabilities = await self._opened(
            "asking for the backend's models", lambda: tinker.RestClient().get_server_capabilities()
        )
        lengths = {model.model_name: model.max_context_length for model in capabilities.supported_models}
        return lengths.get(base_model)

    async def create(self, base_model: str, rank: int, seed: int, metadata: Mapping[str, str]) -> "Training":
        client = await self._opened(
            f"creating a training run of {base_model!r}",
            lambda: self._service.create_lora_training_client(
                base_model, rank=rank, seed=seed, user_metadata=dict(metadata)
            ),
        )
        return Training(client, self._deadline)

    async def load(self, state_path: str, metadata: Mapping[str, str], *, with_optimizer: bool) -> "Training":
        create: Callable[..., Any] = self._service.create_training_client_from_state
        if with_optimizer:
            create = self._service.create_training_client_from_state_with_optimizer
        client = await self._opened(f"loading {state_path}", lambda: create(state_path, user_metadata=dict(metadata)))
        return Training(client, self._deadline)

    async def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints of this key's owner that carry our metadata, of any run."""
        rest = tinker.RestClient()
        found: list[Checkpoint] = []
        offset = 0
        while True:
            listing = functools.partial(rest.list_user_checkpoints, limit=CHECKPOINT_PAGE, offset=offset)
            page = await self._opened("listing checkpoints", listing)
            for listed in page.checkpoints:
                kind = _KINDS.get(listed.checkpoint_type)
                marked = kind and Checkpoint.from_metadata(listed.tinker_path, kind, listed.user_metadata or {})
                if marked:
                    found.append(marked)
            offset += len(page.checkpoints)
            if not page.checkpoints or page.cursor is None or offset >= page.cursor.total_count:
                return found

    async def close(self, status: Literal["success", "errored", "interrupted"]) -> None:
        """Tell the backend that the session is over; its silence changes nothing."""
        with contextlib.suppress(Exception):  # a courtesy at the very end: the session expires by itself
            await asyncio.wait_for(_in_thread(lambda: self._service.close(status).result()), CLOSE_SECONDS)

    async def _opened(self, doing: str, submit: Callable[[], Any]) -> Any:
        """Submit in a thread (the SDK blocks while it opens a session) and wait, within the deadline."""
        try:
            return await asyncio.wait_for(_in_thread(lambda: submit().result()), self._deadline)
        except Exception as error:  # the SDK's errors have no common base
            raise translate(error, doing, self._deadline, opening=True) from error


class Training:
    """The weights being trained. After one failed call the SDK's client is poisoned: the run must end."""

    def __init__(self, client: tinker.TrainingClient, deadline_seconds: float) -> None:
        self._client = client
        self._deadline = deadline_seconds

    @property
    def run_id(self) -> str:
        return str(self._client.model_id)

    async def step(
        self,
        datums: list[Datum],
        loss: types.LossFnType,
        learning_rate: float,
        loss_config: Mapping[str, float] | None = None,
    ) -> StepOutput:
        """One optimizer step and the snapshot after it. `loss_config` holds the loss's own settings (its clips).

        All three requests are submitted before the first is awaited: they land in one clock cycle of the backend.
        """
        adam = types.AdamParams(learning_rate=learning_rate, beta1=ADAM_BETA1, beta2=ADAM_BETA2, eps=ADAM_EPS)
        config = dict(loss_config) if loss_config else None
        begun = time.perf_counter()
        forward_backward = self._client.forward_backward([to_tinker(datum) for datum in datums], loss, config)
        optim_step = self._client.optim_step(adam)
        snapshot = self._client.save_weights_and_get_sampling_client()
        output = await self._wait(forward_backward, "forward_backward")
        passed = time.perf_counter()
        await self._wait(optim_step, "optim_step")
        updated = time.perf_counter()
        sampler = TinkerSampler(await self._wait(snapshot, "taking a snapshot to sample from"), self._deadline)
        return StepOutput(
            logprobs=[np.asarray(row["logprobs"].to_numpy(), np.float64) for row in output.loss_fn_outputs],
            loss_sum=float(output.metrics["loss:sum"]),
            sampler=sampler,
            seconds={
                "forward_backward": passed - begun,
                "optim_step": updated - passed,
                "snapshot": time.perf_counter() - updated,
            },
        )

    async def snapshot(self) -> Sampler:
        future = self._client.save_weights_and_get_sampling_client()
        return TinkerSampler(await self._wait(future, "taking a snapshot to sample from"), self._deadline)

    async def save_state(self, name: str, metadata: Mapping[str, str]) -> str:
        """Save weights and optimizer; returns the path that training can go on from."""
        saved = await self._wait(self._client.save_state(name, user_metadata=dict(metadata)), f"saving state {name}")
        return str(saved.path)

    async def save_sampler(self, name: str, metadata: Mapping[str, str]) -> str:
        """Save weights for inference; returns their path."""
        future = self._client.save_weights_for_sampler(name, user_metadata=dict(metadata))
        return str((await self._wait(future, f"saving sampler weights {name}")).path)

    async def _wait(self, future: Any, doing: str) -> Any:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future.future()), self._deadline)
        except Exception as error:  # the SDK's errors have no common base
            raise translate(error, doing, self._deadline) from error


class TinkerSampler:
    """A Sampler over one snapshot."""

    def __init__(self, client: tinker.SamplingClient, deadline_seconds: float) -> None:
        self._client = client
        self._deadline = deadline_seconds

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        params = types.SamplingParams(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            stop=settings.stop,
            seed=settings.seed,
        )
        future = self._client.sample(types.ModelInput.from_ints(prompt_T.tolist()), n, params)
        try:
            # Cancelling this wait cancels the request at the backend.
            response = await asyncio.wait_for(asyncio.wrap_future(future.future()), self._deadline)
        except Exception as error:
            if refused(error) and getattr(error, "status_code", None) != 404:
                raise SampleRefusedError(str(error)) from error
            raise translate(error, "sampling", self._deadline) from error
        return [_sample(sequence) for sequence in response.sequences]


def to_tinker(datum: Datum) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(datum.input_T.tolist()),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(datum.target_T),
            "logprobs": types.TensorData.from_numpy(datum.logprobs_T.astype(np.float32)),
            "advantages": types.TensorData.from_numpy(datum.advantages_T.astype(np.float32)),
        },
    )


def _sample(sequence: types.SampledSequence) -> Sample:
    tokens_T = np.asarray(sequence.tokens, np.int64)
    logprobs_T = np.asarray(sequence.logprobs, np.float64)
    return Sample(tokens_T, logprobs_T, "length" if sequence.stop_reason == "length" else "stop")


def _done(_: object) -> "Future[None]":
    done: Future[None] = Future()
    done.set_result(None)
    return done


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread: one that never returns must not keep the process alive."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 -- handed to the waiting coroutine
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tinker-open").start()
    return await asyncio.wrap_future(future)
