"""The SDK's wrapper against the real Tinker service: what a lost session leaves behind, and what a wait costs."""

import asyncio
import re
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.backend.conftest import METADATA, settings_of
from tests.unit.tinker_atropos.trainer.backend.made_datums import datum
from tinker.lib.internal_client_holder import _internal_client_holder_thread_singleton as sdk_thread

from rl_contract.bundled import BUNDLED
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.errors import BackendError, BackendLostError, CredentialsError, DivergedError
from tinker_atropos.trainer.backend.answers import HEARD, Patience
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.checkpoints import StoredCheckpoints
from tinker_atropos.trainer.backend.sdk_calls import CheckpointGoneError, Request, answered, in_thread

pytestmark = pytest.mark.usefixtures("addressed")

STORED = StoredCheckpoints(Patience(30))


async def test_a_failed_step_names_the_lost_session_and_leaves_nothing_running(bundled_training) -> None:
    training = bundled_training
    output = await training.step([[datum()]], 1e-3)
    assert set(output.seconds) == {"forward_backward", "optim_step", "snapshot"}
    with pytest.raises(BackendLostError, match=r"forward_backward: .*100000") as caught:
        await training.step([[datum(token=100_000)]], 1e-3)
    assert caught.value.training_run_id == training.run_id
    assert training.call is None


async def test_the_sdks_answers_are_heard(bundled_training) -> None:
    training_before, samples_before = HEARD.alive_until("training"), HEARD.alive_until("sampling")
    output = await bundled_training.step([[datum()]], 1e-3)
    training_after = HEARD.alive_until("training")
    assert training_after > training_before
    assert HEARD.alive_until("sampling") == samples_before
    await output.sampler.sample(np.array([1, 2]), 1, SamplingSettings(max_tokens=1))
    assert HEARD.alive_until("sampling") > samples_before
    assert HEARD.alive_until("training") == training_after


@pytest.mark.parametrize(
    ("loss", "what"),
    [("importance_sampling", "the loss is -inf"), ("ppo", "the gradient is not finite (grad_norm is nan)")],
)
async def test_a_step_that_leaves_the_numbers_is_divergence_not_a_lost_session(
    loss: str, what: str, new_training
) -> None:
    training = await new_training(loss=loss)
    with pytest.raises(DivergedError, match=re.escape(what)):
        await training.step([[datum(logprob=-1e6)]], 1e-3)


async def test_samples_of_weights_that_are_not_numbers_are_divergence(bundled_training) -> None:
    output = await bundled_training.step([[datum()]], 1e308)
    with pytest.raises(DivergedError, match="the logprob of a sampled token is nan"):
        await output.sampler.sample(np.array([1, 2]), 1, SamplingSettings(max_tokens=2))


async def test_abandoned_sessions_leave_no_threads_or_tasks() -> None:
    async def session() -> None:
        backend = await TinkerBackend.open(settings_of(), METADATA)
        training = await backend.create(BUNDLED, METADATA)
        sampler = await training.snapshot()
        await sampler.sample(np.array([1, 2]), 1, SamplingSettings(max_tokens=1))
        await backend.close("errored")

    def load() -> tuple[int, int]:
        return threading.active_count(), len(asyncio.all_tasks(sdk_thread.get_loop()))

    await session()
    before = load()
    for _ in range(3):
        await session()
    give_up = time.monotonic() + 20
    while any(now > then for now, then in zip(load(), before, strict=True)):
        assert time.monotonic() < give_up, f"(threads, tasks) were {before}, and are {load()}"
        await asyncio.sleep(0.05)


async def test_a_missing_state_is_distinguished_from_a_wrong_path(backend, bundled_training) -> None:
    path = await bundled_training.save_state("gone", METADATA, ttl_seconds=None)
    await STORED.delete(path)
    with pytest.raises(CheckpointGoneError, match=path):
        await backend.load(path, METADATA, with_optimizer=True)


async def test_stored_checkpoints_are_listed_with_their_marks_and_expiry(bundled_training) -> None:
    marks = {"run_uid": "listing-test", "attempt": "2", "step": "7"}
    path = await bundled_training.save_state("periodic", marks, ttl_seconds=30 * 86_400)
    (found,) = [one for one in await STORED.list() if one.run_uid == "listing-test"]
    assert (found.path, found.kind, found.attempt, found.step) == (path, "state", 2, 7)
    assert found.expires_at is not None
    await STORED.keep_forever(path)
    (kept,) = [one for one in await STORED.list() if one.run_uid == "listing-test"]
    assert kept.expires_at is None


async def test_a_wrong_key_is_reported_at_once(monkeypatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-wrong")
    with pytest.raises(CredentialsError, match="TINKER_API_KEY"):
        await TinkerBackend.open(settings_of(), METADATA)


class NeverAnswered:
    """A future of the SDK whose request hangs."""

    def __init__(self) -> None:
        self._future: Future[None] = Future()

    def future(self) -> "Future[None]":
        return self._future


async def test_a_wait_has_a_deadline_and_abandons_the_request() -> None:
    hanging = NeverAnswered()
    with pytest.raises(BackendError, match=r"optim_step: no answer within trainer.backend_deadline_seconds \(0.05 s\)"):
        await answered("optim_step", Patience(0.05), Request(lambda: hanging))
    assert hanging.future().cancelled()


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_canceled_gets_no_answer_that_came_just_then(turns: int) -> None:
    """Whatever the loop has done with the answer so far: training must not go on."""
    request = NeverAnswered()
    waiting = asyncio.ensure_future(answered("forward_backward", Patience(60), Request(lambda: request)))
    await asyncio.sleep(0)
    request.future().set_result(1)
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_call_that_blocks_forever_can_be_abandoned() -> None:
    released = threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(in_thread(released.wait), 0.05)
    released.set()
