"""One attempt's checkpoints at the real Tinker service."""

from collections.abc import AsyncIterator

import pytest

from rl_contract.bundled import BUNDLED
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import InternalError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend.backend import TinkerBackend, Training
from tinker_atropos.trainer.backend.checkpoint_keeper import CheckpointKeeper
from tinker_atropos.trainer.backend.stored_checkpoints import StoredCheckpoints


@pytest.fixture
async def backend(tinker_service, monkeypatch) -> AsyncIterator[TinkerBackend]:
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)
    backend = await TinkerBackend.open(30, {})
    yield backend
    await backend.close("success")


@pytest.fixture
async def bundled_training(backend: TinkerBackend) -> Training:
    return await backend.create(BUNDLED, 4, 0, {})


def keeper(run_uid: str, attempt: int, **settings: int) -> CheckpointKeeper:
    return CheckpointKeeper(Settings(run_uid=run_uid, attempt=attempt), TrainerSettings(**settings))


async def steps(backend: TinkerBackend, run_uid: str) -> list[tuple[int, int, str]]:
    listed = await backend.stored.list()
    return sorted((one.attempt, one.step, one.kind) for one in listed if one.run_uid == run_uid)


async def test_an_attempt_deletes_what_its_own_saves_replace(backend, bundled_training) -> None:
    first, second = keeper("tidied", 1, keep_checkpoints=1), keeper("tidied", 2, keep_checkpoints=1)
    await first.save_state(bundled_training, 10, forever=False)
    await second.tidy(backend.stored)
    assert await steps(backend, "tidied") == [(1, 10, "state")], "it is all that there is"

    saved = await second.save_state(bundled_training, 20, forever=False)
    await second.save_sampler(bundled_training, 20)
    await second.tidy(backend.stored)
    assert await steps(backend, "tidied") == [(2, 20, "sampler"), (2, 20, "state")]
    assert saved.expires_at is not None


async def test_the_last_save_is_kept_even_below_states_that_could_not_be_loaded(backend, bundled_training) -> None:
    """An attempt that went back before its newest state saves at an earlier step than that."""
    attempt = keeper("went-back", 1, keep_checkpoints=1)
    await attempt.save_state(bundled_training, 20, forever=False)
    await attempt.save_state(bundled_training, 10, forever=False)
    await attempt.tidy(backend.stored)
    assert (1, 10, "state") in await steps(backend, "went-back")


async def test_an_attempt_ends_when_a_newer_one_has_saved_meanwhile(backend, bundled_training) -> None:
    older, newer = keeper("raced", 1), keeper("raced", 2)
    await newer.save_state(bundled_training, 10, forever=True)
    await older.save_state(bundled_training, 12, forever=True)
    with pytest.raises(InternalError, match=r"attempt 2 of this run has already saved .*; attempt 1 ends"):
        await older.tidy(backend.stored)


async def test_what_is_gone_already_is_deleted(backend, bundled_training) -> None:
    """The answer to the first request may have been lost."""
    path = await keeper("deleted-twice", 1).save_sampler(bundled_training, 10)
    await backend.stored.delete(path)
    await backend.stored.delete(path)
    assert await steps(backend, "deleted-twice") == []


async def test_a_backend_that_does_not_delete_is_a_warning(bundled_training, caplog) -> None:
    keep_one = keeper("stuck", 1, keep_checkpoints=1)
    await keep_one.save_state(bundled_training, 10, forever=True)
    await keep_one.tidy(StoredCheckpoints(deadline_seconds=0))
    assert "old checkpoints could not be deleted" in caplog.text
