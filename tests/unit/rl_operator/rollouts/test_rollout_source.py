import pytest

from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing, files_by_step, nearest_steps


def test_files_of_a_step_newest_attempt_first() -> None:
    names = ["000012-2.jsonl.zst", "000002-1.jsonl.zst", "000012-10.jsonl.zst", "1000000-1.jsonl.zst"]
    others = ["000012.jsonl.zst", "000012-2.jsonl", "a-1.jsonl.zst", "000012-2.jsonl.zst.tmp", "../000001-1.jsonl.zst"]
    found = files_by_step(RolloutListing(tuple(RolloutFile(name, 5) for name in names + others)))
    assert list(found) == [2, 12, 1_000_000]
    assert [each.attempt for each in found[12].files] == [10, 2]
    assert found[12].bytes == 10


@pytest.mark.parametrize(
    ("wanted", "near"), [(0, [1, 2]), (3, [1, 2, 4, 8]), (4, [1, 2, 4, 8]), (100, [16, 32]), (20, [8, 16, 32])]
)
def test_nearest_steps(wanted: int, near: list[int]) -> None:
    assert nearest_steps([1, 2, 4, 8, 16, 32], wanted) == near


def test_no_steps() -> None:
    assert nearest_steps([], 3) == []
