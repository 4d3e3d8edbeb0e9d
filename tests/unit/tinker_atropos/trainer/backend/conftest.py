from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.conftest import TinkerServiceProcess

from rl_contract.bundled import BUNDLED
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.lora_weights import Training

METADATA = {"run_uid": "backend-test", "attempt": "1", "step": "1"}

NewTraining = Callable[..., Awaitable[Training]]


@pytest.fixture
def addressed(tinker_service: TinkerServiceProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK finds the session's service."""
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)


def settings_of(**changes: object) -> TrainerSettings:
    return TrainerSettings.model_validate({"lora_rank": 4, "backend_deadline_seconds": 30, **changes})


@pytest.fixture
async def backend(addressed: None) -> AsyncIterator[TinkerBackend]:
    backend = await TinkerBackend.open(settings_of(), METADATA)
    yield backend
    await backend.close("success")


@pytest.fixture
async def bundled_training(backend: TinkerBackend) -> Training:
    return await backend.create(BUNDLED, METADATA)


@pytest.fixture
async def new_training(addressed: None) -> AsyncIterator[NewTraining]:
    """Trainings of a session of their own, with the trainer's settings that are given."""
    opened = []

    async def create(**changes: object) -> Training:
        backend = await TinkerBackend.open(settings_of(**changes), METADATA)
        opened.append(backend)
        return await backend.create(BUNDLED, METADATA)

    yield create
    for backend in opened:
        await backend.close("success")
