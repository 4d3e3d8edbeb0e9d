import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource

from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.rollout_source import RolloutSteps

FOUND = ["000012-2.jsonl.zst", "000002-1.jsonl.zst", "000012-10.jsonl.zst", "1000000-1.jsonl.zst", "000001-1.jsonl.zst"]
OTHERS = ["000012.jsonl.zst", "000012-2.jsonl", "a-1.jsonl.zst", "000012-2.jsonl.zst.tmp", "../000001-1.jsonl.zst"]


def steps_of(*names: str, every: int = 1) -> RolloutSteps:
    return RolloutSteps.of(MemorySource(dict.fromkeys(names, b"12345"), every=every))


def test_files_of_a_step_newest_attempt_first() -> None:
    found = steps_of(*FOUND, *OTHERS)
    assert list(found.steps) == [1, 2, 12, 1_000_000]
    assert [files.step for files in found.newest_first()] == [1_000_000, 12, 2, 1]
    assert list(found.step(12).files) == [10, 2]
    assert found.step(12).bytes == 10


@pytest.mark.parametrize(
    ("wanted", "every", "near"),
    [
        (0, 1, "1, 2"),
        (3, 1, "1, 2, 12, 1000000"),
        (13, 1, "2, 12, 1000000"),
        (2_000_000, 1, "12, 1000000"),
        (13, 4, "2, 12, 1000000; every 4th step is kept"),
    ],
)
def test_a_step_that_there_is_not(wanted: int, every: int, near: str) -> None:
    with pytest.raises(RefusedError) as raised:
        steps_of(*FOUND, every=every).step(wanted)
    assert str(raised.value) == f"there are no rollouts of step {wanted}; the nearest steps that have some: {near}"
