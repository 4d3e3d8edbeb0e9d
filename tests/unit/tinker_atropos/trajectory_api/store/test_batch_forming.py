"""Batches: exact sizes, oldest first, nothing lost, never split."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.trajectory_api.store.batch_forming import QueuedGroup, first_exact, form_batch

SIZES = st.lists(st.integers(1, 9), max_size=9)


def queue_of(sizes: list[int], envs: list[int | None] | None = None) -> list[QueuedGroup]:
    return [QueuedGroup(10 + n, envs[n] if envs else 0, size) for n, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 24))
def test_first_exact_is_the_lexicographically_oldest_choice(sizes: list[int], target: int) -> None:
    every_choice = [
        list(positions)
        for length in range(1, len(sizes) + 1)
        for positions in combinations(range(len(sizes)), length)
        if sum(sizes[p] for p in positions) == target
    ]
    # Lexicographic on "taken or left", the oldest position first.
    expected = max(every_choice, key=lambda chosen: [n in chosen for n in range(len(sizes))], default=None)
    assert first_exact(sizes, target) == expected


@pytest.mark.parametrize(
    ("sizes", "target", "expected"),
    [
        ([8] * 5, 32, [0, 1, 2, 3]),
        ([8] * 3, 32, None),
        ([], 4, None),
        ([3, 4, 4], 8, [1, 2]),
        ([3, 4, 4, 1], 8, [0, 1, 3]),
        ([5], 4, None),
    ],
)
def test_first_exact(sizes: list[int], target: int, expected: list[int] | None) -> None:
    assert first_exact(sizes, target) == expected


@given(SIZES, st.integers(1, 16))
def test_batches_partition_the_queue(sizes: list[int], batch_size: int) -> None:
    queue = queue_of(sizes)
    taken: list[QueuedGroup] = []
    waiting = list(queue)
    while (batch := form_batch(waiting, batch_size, {})) is not None:
        assert sum(group.size for group in batch) == batch_size
        assert batch == sorted(batch, key=lambda group: group.group_id)
        taken += batch
        waiting = [group for group in waiting if group not in batch]
    assert sorted(taken + waiting, key=lambda group: group.group_id) == queue


@given(st.integers(1, 12), st.sampled_from([1, 2, 4, 8]))
def test_equal_groups_leave_first_in_first_out(count: int, size: int) -> None:
    queue = queue_of([size] * count)
    batch = form_batch(queue, 8, {})
    assert batch == (queue[: 8 // size] if count * size >= 8 else None)


def test_a_minimum_share_comes_before_older_groups() -> None:
    queue = queue_of([2, 2, 2, 2], envs=[0, 0, 1, 1])
    batch = form_batch(queue, 4, {1: 0.5})
    assert batch is not None
    assert [(group.group_id, group.env_id) for group in batch] == [(10, 0), (12, 1)]


def test_a_minimum_share_of_a_silent_environment_blocks_nothing() -> None:
    queue = queue_of([2, 2], envs=[0, 0])
    assert form_batch(queue, 4, {1: 0.5}) == queue


def test_groups_without_an_environment_are_batched_too() -> None:
    queue = queue_of([2, 2], envs=[None, None])
    assert form_batch(queue, 4, {1: 0.5}) == queue
