"""Which groups form a batch. Pure: sizes in, positions out; oldest first, and a group is never split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """A queued group as batching sees it: `size` is its number of rollouts."""

    group_id: int
    env_id: int | None
    size: int


def first_exact(sizes: Sequence[int], target: int) -> list[int] | None:
    """The oldest positions whose sizes sum to exactly `target`; None if there is no such choice.

    "Oldest" is lexicographic: an item is skipped only if no exact sum contains it and the ones taken before it.
    """
    within_target = (1 << (target + 1)) - 1
    reachable = [1]  # bit n of the last entry: the items looked at so far can sum to n (from the newest item backward)
    for size in reversed(sizes):
        reachable.append((reachable[-1] | reachable[-1] << size) & within_target)
    chosen: list[int] = []
    missing = target
    for position, size in enumerate(sizes):
        behind = reachable[len(sizes) - position - 1]
        if size <= missing and behind >> (missing - size) & 1:
            chosen.append(position)
            missing -= size
    return None if missing else chosen


def form_batch(
    queue: Sequence[QueuedGroup], batch_size: int, minimum_shares: Mapping[int, float]
) -> list[QueuedGroup] | None:
    """The next batch of exactly `batch_size` rollouts, in queue order, or None if there is none yet.

    `minimum_shares` (env_id -> fraction of a batch) come first if such groups are queued, but never delay a batch: an
    environment that sends nothing must not stop training.
    """
    ranked = _shares_first(queue, {env: int(batch_size * share) for env, share in minimum_shares.items()})
    chosen = first_exact([group.size for group in ranked], batch_size)
    if chosen is None:
        return None
    return sorted((ranked[position] for position in chosen), key=lambda group: group.group_id)


def _shares_first(queue: Sequence[QueuedGroup], owed: dict[int, int]) -> list[QueuedGroup]:
    preferred: list[QueuedGroup] = []
    others: list[QueuedGroup] = []
    for group in queue:
        rollouts_owed = owed.get(group.env_id, 0) if group.env_id is not None else 0
        if group.env_id is not None and rollouts_owed > 0:
            owed[group.env_id] = rollouts_owed - group.size
            preferred.append(group)
        else:
            others.append(group)
    return preferred + others
