import pytest

from tinker_atropos.errors import InternalError
from tinker_atropos.trainer.checkpoints import Checkpoint, checkpoint_metadata, checkpoint_name, newest_state


def checkpoint(attempt: int, step: int, kind: str = "state", uid: str = "u") -> Checkpoint:
    return Checkpoint(f"tinker://r{attempt}/weights/{step}", kind, uid, attempt, step)


@pytest.mark.parametrize(
    ("checkpoints", "expected"),
    [
        ([], None),
        ([checkpoint(1, 25), checkpoint(1, 50)], (1, 50)),
        ([checkpoint(1, 50), checkpoint(2, 50), checkpoint(2, 25)], (2, 50)),
        ([checkpoint(1, 100), checkpoint(2, 75)], (1, 100)),
        ([checkpoint(1, 25), checkpoint(1, 50, kind="sampler")], (1, 25)),
        ([checkpoint(1, 25), checkpoint(9, 99, uid="another run")], (1, 25)),
        ([checkpoint(1, 50, uid="another run")], None),
    ],
)
def test_a_new_attempt_goes_on_from_the_furthest_state(checkpoints, expected) -> None:
    found = newest_state(checkpoints, "u", attempt=3)
    assert (found and (found.attempt, found.step)) == expected


def test_an_attempt_ends_when_a_newer_one_has_saved() -> None:
    with pytest.raises(InternalError, match=r"attempt 4 of this run has already saved .*; attempt 3 ends"):
        newest_state([checkpoint(1, 25), checkpoint(4, 50)], "u", attempt=3)


def test_metadata_round_trip() -> None:
    marked = Checkpoint.from_metadata("p", "state", checkpoint_metadata("u", attempt=2, step=50))
    assert marked == Checkpoint("p", "state", "u", 2, 50)


@pytest.mark.parametrize("metadata", [{}, {"run_uid": "u"}, {"run_uid": "u", "attempt": "x", "step": "1"}])
def test_checkpoints_of_others_are_not_ours(metadata: dict[str, str]) -> None:
    assert Checkpoint.from_metadata("p", "state", metadata) is None


def test_names_sort_as_steps_do_and_differ_by_attempt() -> None:
    names = [checkpoint_name(1, step) for step in (0, 9, 10, 2500)]
    assert names == sorted(names)
    assert checkpoint_name(1, 9) != checkpoint_name(2, 9)
