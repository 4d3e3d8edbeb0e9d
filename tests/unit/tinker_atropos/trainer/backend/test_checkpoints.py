import re
from datetime import UTC, datetime

import pytest

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import InternalError
from tinker_atropos.settings import RecordedCheckpoint, Settings
from tinker_atropos.trainer.backend.answers import Patience
from tinker_atropos.trainer.backend.checkpoints import (
    BesideWeights,
    CheckpointKeeper,
    StoredCheckpoint,
    StoredCheckpoints,
    checkpoint_metadata,
    checkpoint_name,
    lost_sentence,
    states_to_resume,
    superfluous_states,
)

STORED = StoredCheckpoints(Patience(30))


def checkpoint(attempt: int, step: int, kind: str = "state", uid: str = "u") -> StoredCheckpoint:
    return StoredCheckpoint(f"tinker://r{attempt}/weights/{step}", kind, uid, attempt, step)


@pytest.mark.parametrize(
    ("checkpoints", "expected"),
    [
        ([], []),
        ([checkpoint(1, 25), checkpoint(1, 50)], [(1, 50), (1, 25)]),
        ([checkpoint(1, 50), checkpoint(2, 50), checkpoint(2, 25)], [(2, 50), (1, 50), (2, 25)]),
        ([checkpoint(1, 100), checkpoint(2, 75)], [(1, 100), (2, 75)]),
        ([checkpoint(1, 25), checkpoint(1, 50, kind="sampler")], [(1, 25)]),
        ([checkpoint(1, 25), checkpoint(9, 99, uid="another run")], [(1, 25)]),
        ([checkpoint(1, 50, uid="another run")], []),
    ],
)
def test_an_attempt_continues_from_the_furthest_state_then_the_one_before(checkpoints, expected) -> None:
    states = states_to_resume(checkpoints, "u", attempt=3)
    assert [(state.attempt, state.step) for state in states] == expected


@pytest.mark.parametrize(
    ("checkpoints", "keep", "keep_every", "expected"),
    [
        ([checkpoint(3, step) for step in (10, 20, 30)], 3, 0, set()),
        ([checkpoint(3, step) for step in (10, 20, 30, 40, 50)], 3, 0, {(3, 10), (3, 20)}),
        ([checkpoint(3, step) for step in (10, 20, 30, 40, 50)], 1, 20, {(3, 10), (3, 30)}),
        # An earlier attempt's last state is deleted only when this attempt has saved its own.
        ([checkpoint(1, 10), checkpoint(2, 20)], 1, 0, set()),
        ([checkpoint(1, 10), checkpoint(2, 20), checkpoint(3, 30)], 1, 0, {(1, 10), (2, 20)}),
        # An attempt that had to go back is still the newest: its saves are kept.
        ([checkpoint(2, 100), checkpoint(3, 80)], 1, 0, {(2, 100)}),
        # Neither sampler weights nor another run's states are ours to delete.
        ([checkpoint(3, 10, kind="sampler"), checkpoint(3, 10, uid="another run"), checkpoint(3, 20)], 1, 0, set()),
    ],
)
def test_old_states_are_deleted_by_count(checkpoints, keep, keep_every, expected) -> None:
    states = superfluous_states(checkpoints, "u", attempt=3, keep=keep, keep_every=keep_every)
    assert {(state.attempt, state.step) for state in states} == expected


def test_an_attempt_ends_when_a_newer_one_has_saved() -> None:
    with pytest.raises(InternalError, match=r"attempt 4 of this run has already saved .*; attempt 3 ends"):
        states_to_resume([checkpoint(1, 25), checkpoint(4, 50)], "u", attempt=3)


RECORDED = RecordedCheckpoint(50, "tinker://r1/weights/50")
NEWER, SAME, OLDER = checkpoint(2, 75), checkpoint(1, 50), checkpoint(1, 25)


@pytest.mark.parametrize(
    ("recorded", "listed", "gone", "expected"),
    [
        (None, [], 0, None),
        (None, [SAME, OLDER], 0, None),
        (None, [SAME, OLDER], 1, None),  # nothing is known of it: the one before will do
        (None, [SAME], 1, r"after step 50 .* it has none that can be loaded"),
        (RECORDED, [SAME, OLDER], 0, None),
        (RECORDED, [NEWER, SAME], 1, None),
        (RECORDED, [], 0, r"after step 50 .* it has none that can be loaded"),
        (RECORDED, [OLDER], 0, r"after step 50 .* the newest one, after step 25: tinker://r1/weights/25"),
        (RECORDED, [SAME, OLDER], 1, r"after step 50 .* the newest one, after step 25"),
    ],
)
def test_a_lost_checkpoint_is_noticed(recorded, listed, gone, expected) -> None:
    sentence = lost_sentence(recorded, listed, listed[gone:])
    assert (sentence is None) == (expected is None)
    assert expected is None or re.search(expected, sentence)


def test_metadata_round_trip() -> None:
    marked = StoredCheckpoint.from_metadata("p", "state", checkpoint_metadata("u", attempt=2, step=50))
    assert marked == StoredCheckpoint("p", "state", "u", 2, 50)
    state = '{"level": 2}'
    marked = StoredCheckpoint.from_metadata(
        "p", "state", checkpoint_metadata("u", 2, 50, BesideWeights(state, '{"next":7}'))
    )
    assert marked == StoredCheckpoint("p", "state", "u", 2, 50, beside=BesideWeights(state, '{"next":7}'))


@pytest.mark.parametrize("metadata", [{}, {"run_uid": "u"}, {"run_uid": "u", "attempt": "x", "step": "1"}])
def test_checkpoints_of_others_are_ignored(metadata: dict[str, str]) -> None:
    assert StoredCheckpoint.from_metadata("p", "state", metadata) is None


def test_names_sort_like_steps_and_differ_by_attempt() -> None:
    names = [checkpoint_name(1, step) for step in (0, 9, 10, 2500)]
    assert names == sorted(names)
    assert checkpoint_name(1, 9) != checkpoint_name(2, 9)


def test_the_wire_form_contains_the_expiry() -> None:
    expires_at = datetime(2026, 12, 24, 18, 30, 15, 999, tzinfo=UTC)
    assert StoredCheckpoint("p", "state", "u", 2, 50, expires_at).message.to_wire() == {
        "step": 50,
        "statePath": "p",
        "expiresAt": "2026-12-24T18:30:15Z",
    }
    assert StoredCheckpoint("p", "state", "u", 2, 50).message.expires_at is None


def keeper(run_uid: str, attempt: int, **settings: int) -> CheckpointKeeper:
    return CheckpointKeeper(Settings(run_uid=run_uid, attempt=attempt), TrainerSettings(**settings))


async def steps(run_uid: str) -> list[tuple[int, int, str]]:
    listed = await STORED.list()
    return sorted((one.attempt, one.step, one.kind) for one in listed if one.run_uid == run_uid)


async def test_an_attempt_deletes_what_its_own_saves_replace(bundled_training) -> None:
    first, second = keeper("tidied", 1, keep_checkpoints=1), keeper("tidied", 2, keep_checkpoints=1)
    await first.save_state(bundled_training, 10, forever=False)
    await second.tidy()
    assert await steps("tidied") == [(1, 10, "state")], "it is all that there is"

    saved = await second.save_state(bundled_training, 20, forever=False)
    await second.save_sampler(bundled_training, 20)
    await second.tidy()
    assert await steps("tidied") == [(2, 20, "sampler"), (2, 20, "state")]
    assert saved.expires_at is not None


async def test_the_last_save_is_kept_even_below_states_that_could_not_be_loaded(bundled_training) -> None:
    """An attempt that went back before its newest state saves at an earlier step than that."""
    attempt = keeper("went-back", 1, keep_checkpoints=1)
    await attempt.save_state(bundled_training, 20, forever=False)
    await attempt.save_state(bundled_training, 10, forever=False)
    await attempt.tidy()
    assert (1, 10, "state") in await steps("went-back")


async def test_an_attempt_ends_when_a_newer_one_has_saved_meanwhile(bundled_training) -> None:
    older, newer = keeper("raced", 1), keeper("raced", 2)
    await newer.save_state(bundled_training, 10, forever=True)
    await older.save_state(bundled_training, 12, forever=True)
    with pytest.raises(InternalError, match=r"attempt 2 of this run has already saved .*; attempt 1 ends"):
        await older.tidy()


async def test_what_is_gone_already_is_deleted(bundled_training) -> None:
    """The answer to the first request may have been lost."""
    path = await keeper("deleted-twice", 1).save_sampler(bundled_training, 10)
    await STORED.delete(path)
    await STORED.delete(path)
    assert await steps("deleted-twice") == []


async def test_a_backend_that_does_not_delete_is_a_warning(bundled_training, caplog) -> None:
    keep_one = keeper("stuck", 1, keep_checkpoints=1)
    await keep_one.save_state(bundled_training, 10, forever=True)
    keep_one.stored = StoredCheckpoints(Patience(0))
    await keep_one.tidy()
    assert "old checkpoints could not be deleted" in caplog.text
