"""What a backend takes in hand and then has no room for, through the real SDK and the real Tinker service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.conftest import TinkerServiceProcess
from tests.integration.training.faults import Fault, FaultProxy
from tests.unit.tinker_atropos.trainer.backend.conftest import METADATA, settings_of
from tests.unit.tinker_atropos.trainer.backend.made_datums import datum, taught

from rl_contract.bundled import BUNDLED
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.errors import BackendLostError, WithdrawnError
from tinker_atropos.trainer.backend.answers import HEARD, TRAINING
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.data.datums import Datum

FULL = {"error": "Maximum number of LoRA adapters (6) reached", "category": "user"}
PROMPT = np.array([1, 2, 3])


def refusing(*paths: str, times: int = 2, skip: int = 0) -> list[Fault]:
    return [Fault("refuse", f"POST /api/v1/{path}$", times=times, skip=skip, content=FULL) for path in paths]


@dataclass
class Refusing:
    proxy: FaultProxy
    training: Training


@pytest.fixture
async def refusing_backend(
    tinker_service: TinkerServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Refusing]:
    """Training at a backend that refuses what is not there yet to be refused."""
    for name in ("stopping", "withdrawn"):
        monkeypatch.setattr(HEARD, name, False)
    monkeypatch.setattr(HEARD, "untaken", 0)
    async with FaultProxy(tinker_service.url).running() as proxy:
        for name, value in {**tinker_service.env_vars, "TINKER_BASE_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        backend = await TinkerBackend.open(settings_of(), METADATA)
        yield Refusing(proxy, await backend.create(BUNDLED, METADATA))
        await backend.close("success")


async def state_of(training: Training) -> list[list[float]]:
    """Two steps, and what the weights are after them."""
    await training.step([[datum(5)]], 1e-2)
    await training.step([[datum(6)], [datum(7)]], 1e-2)
    return [row.tolist() for row in await training.forward([datum(8)])]


async def sample(training: Training) -> Any:
    return await (await training.snapshot()).sample(PROMPT, 1, SamplingSettings(max_tokens=1))


CALLS: dict[str, tuple[list[Fault], Callable[[Training], Awaitable[Any]]]] = {
    "a snapshot": (refusing("save_weights_for_sampler"), state_of),
    "logprobs": (refusing("forward_backward", skip=3), state_of),
    "an optimizer step and the snapshot behind it": (
        refusing("optim_step", times=1, skip=2) + refusing("save_weights_for_sampler", times=1, skip=1),
        state_of,
    ),
    "a step": (refusing("forward_backward", "optim_step", "save_weights_for_sampler", times=1), state_of),
    "half a step": (
        refusing("forward_backward", "optim_step", skip=2, times=1) + refusing("save_weights_for_sampler", skip=1),
        state_of,
    ),
    "a sample": (refusing("asample"), sample),
    "a state": (refusing("save_weights"), lambda training: training.save_state("kept", METADATA, None)),
    "weights": (refusing("save_weights_for_sampler"), lambda training: training.save_sampler("kept", METADATA)),
}


@pytest.mark.parametrize(("faults", "call"), CALLS.values(), ids=CALLS)
async def test_it_is_asked_again_and_done_once(faults, call, refusing_backend: Refusing, new_training) -> None:
    refusing_backend.proxy.faults = faults
    expected = await call(await new_training()) if call is state_of else None
    got = await call(refusing_backend.training)
    assert [fault.hits for fault in faults] == [fault.times for fault in faults]
    assert got == expected if call is state_of else got
    assert HEARD.paused(TRAINING) is None


@pytest.mark.parametrize("path", ["forward_backward", "optim_step"])
async def test_what_was_done_without_it_is_not_done_twice(path: str, refusing_backend: Refusing) -> None:
    refusing_backend.proxy.faults = refusing(path, times=1)
    with pytest.raises(BackendLostError, match="LoRA"):
        await refusing_backend.training.step([[datum(5)], [datum(6)]], 1e-2)


async def test_what_may_have_been_done_is_not_done_twice(refusing_backend: Refusing) -> None:
    said = {"error": "worker lost during optim_step: retries exhausted", "category": "server"}
    refusing_backend.proxy.faults = [Fault("refuse", "POST /api/v1/optim_step$", content=said)]
    with pytest.raises(BackendLostError, match="exhausted"):
        await refusing_backend.training.step([[datum(5)]], 1e-2)


async def test_a_teachers_gradient_without_room_is_no_wrong_configuration(refusing_backend: Refusing) -> None:
    refusing_backend.proxy.faults = refusing("forward_backward", times=1, skip=1)
    with pytest.raises(BackendLostError, match="LoRA"):
        await refusing_backend.training.step([[taught(5, advantage=1.0), datum(6)]], 1e-4)


IN_PARTS: dict[str, tuple[list[Fault], list[list[Datum]]]] = {
    "the one without room": (
        refusing("forward_backward", times=1, skip=1) + refusing("optim_step", "save_weights_for_sampler", times=1),
        [[datum(5), datum(6)]],
    ),
    "one behind it": (
        refusing("forward_backward", "save_weights_for_sampler", times=1)
        + refusing("forward_backward", times=1, skip=1)
        + refusing("optim_step"),
        [[datum(5)], [datum(6), datum(7)]],
    ),
}


@pytest.fixture
def in_parts(refusing_backend: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends each datum by itself."""
    holder = refusing_backend.training._client.holder
    split = holder._client_config.model_copy(update={"fwdbwd_max_chunk_len": 1})
    monkeypatch.setattr(holder, "_client_config", split)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(("faults", "minibatches"), IN_PARTS.values(), ids=IN_PARTS)
async def test_what_the_sdk_has_sent_in_parts_is_not_either(faults, minibatches, refusing_backend: Refusing) -> None:
    refusing_backend.proxy.faults = faults
    with pytest.raises(BackendLostError, match="LoRA"):
        await refusing_backend.training.step(minibatches, 1e-2)


WITHDRAWN: dict[str, tuple[str, Callable[[Training], Awaitable[Any]]]] = {
    "a step": ("forward_backward", lambda training: training.step([[datum(6)], [datum(7), datum(8)]], 1e-2)),
    "logprobs": ("forward_backward", lambda training: training.forward([datum(6), datum(7)])),
    "a snapshot": ("save_weights_for_sampler", Training.snapshot),
    "sampler weights": ("save_weights_for_sampler", lambda training: training.save_sampler("kept", METADATA)),
}


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(("path", "call"), WITHDRAWN.values(), ids=WITHDRAWN)
async def test_what_a_stop_withdraws_leaves_no_gap_in_the_numbers(path, call, refusing_backend: Refusing) -> None:
    """What is trained is saved, by a backend that does requests in the order of their numbers."""
    training, proxy = refusing_backend.training, refusing_backend.proxy
    await training.step([[datum(5)]], 1e-2)
    full = {"detail": "max_loras reached"}
    proxy.faults = [Fault("answer", f"POST /api/v1/{path}$", times=None, status=429, content=full)]
    asking = asyncio.ensure_future(call(training))
    async with asyncio.timeout(60):
        while HEARD.paused(TRAINING) is None:
            await asyncio.sleep(0)
        HEARD.stopping = True
        with pytest.raises(WithdrawnError):
            await asking
        await training.save_state("stopped", METADATA, None)
    *_, trained, saved = proxy.numbers
    assert saved == trained + 1


async def test_a_stop_withdraws_a_step_that_there_is_no_room_for(refusing_backend: Refusing) -> None:
    """What is trained is saved."""
    training = refusing_backend.training
    await training.step([[datum(5)]], 1e-2)
    refusing_backend.proxy.faults = refusing("forward_backward", "optim_step", "save_weights_for_sampler", times=100)
    stepping = asyncio.ensure_future(training.step([[datum(6)]], 1e-2))
    async with asyncio.timeout(60):
        while HEARD.paused(TRAINING) is None:
            await asyncio.sleep(0)
        HEARD.stopping = True
        with pytest.raises(WithdrawnError, match="accepted"):
            await stepping
        assert await training.save_state("stopped", METADATA, None)
