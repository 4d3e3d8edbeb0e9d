"""What environments see of the run, so that they make enough groups, no surplus, and end with it. Pure.

An unmodified BaseEnv ends when `current_step + queued batches > total_steps`, stops making rollouts while the queue
holds `max_batches_offpolicy` batches, and shares a batch by `unallocated_fraction`. So:

* `current_step` counts trained steps; when the run is over it is `total_steps + 1`, and the environment ends.
* The reported queue never reaches past the last step: the environment must not leave before the trainer is done.
* When enough groups for the rest exist, the reported queue holds all the rest and no share of a batch is free. The
  queue alone is not enough: near the end a queue long enough to pause the environment would end it.
* While a trainer waits for rollouts that the queue lacks, the queue is never reported as full, whatever odd sizes it
  holds.
* `room` is our extension, and BaseEnv ignores it: how many rollouts, queued and in flight, the run can use without
  training on older ones than `max_staleness` allows, as the trainer reported it last. Live environments share it by
  whole groups, and the remainder goes to the lowest numbers: together they start no more groups than one would.

Everything is counted in rollouts, even if a rollout gave several sequences.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinker_atropos.trajectory_api.messages.requests import (
    GroupCount,
    ProgressReport,
    RegisteredEnv,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.service.held_leases import LeaseView
from tinker_atropos.trajectory_api.store.batches import first_exact

MIN_ENV_WEIGHT = 0.01
ENOUGH_OF_ITS_OWN = 1_000_000
"""A `self_queue_size` above every minimum allocation."""


def over_reason(progress: ProgressReport, trainer: LeaseView) -> str | None:
    """Why the run is over, or None while it continues."""
    if progress.training_done:
        return progress.reason or "training is done"
    if trainer.gone or trainer.state == "done":
        return f"the trainer is {trainer.state}" + (f": {trainer.reason}" if trainer.reason else "")
    return None


@dataclass(frozen=True, slots=True)
class Pace:
    """What the run still needs. `rollouts_left` is None until a trainer has registered, `room` if there is no limit.

    `missing`: how many rollouts a waiting trainer still lacks; 0 if it does not wait, or the queue holds them by now.
    """

    over: bool
    enough: bool
    current_step: int
    rollouts_left: int | None
    missing: int
    room: int | None

    def queue_size(self, rollouts: int, group_size: int) -> int:
        """The queue to report, in groups of `group_size`."""
        if self.over:
            return 0
        if self.rollouts_left is not None:
            rollouts = self.rollouts_left if self.enough else min(rollouts, self.rollouts_left)
        if self.missing:
            rollouts = min(rollouts, max(0, self.missing - group_size))
        return rollouts // group_size


def pace(
    registration: TrainerRegistration | None,
    progress: ProgressReport,
    counts: Sequence[GroupCount],
    *,
    over: bool,
    missing: int,
) -> Pace:
    """`missing`: how many rollouts the trainer's last request for a batch lacked."""
    if registration is None:
        return Pace(over=over, enough=False, current_step=0, rollouts_left=None, missing=0, room=None)
    steps_left = max(0, registration.num_steps - progress.steps_trained)
    rollouts_left = steps_left * registration.batch_size
    at_hand = sum(count.rollouts for count in counts if count.state in ("queued", "delivered"))
    queued = sum(count.rollouts for count in counts if count.state == "queued")
    missing = 0 if _holds(counts, missing) else missing
    lacking = missing - queued if queued < missing else missing
    return Pace(
        over=over,
        enough=at_hand >= rollouts_left and not missing,
        current_step=registration.num_steps + 1 if over else progress.steps_trained,
        rollouts_left=rollouts_left,
        missing=missing,
        room=_room(registration, progress, 0 if over else rollouts_left, at_hand, 0 if over else lacking),
    )


def _holds(counts: Iterable[GroupCount], rollouts: int) -> bool:
    sizes = [count.size for count in counts if count.state == "queued" for _ in range(count.groups)]
    return first_exact(sizes, rollouts) is not None


def _room(
    registration: TrainerRegistration, progress: ProgressReport, wanted: int, at_hand: int, missing: int
) -> int | None:
    """`wanted` for the rest of the run. A trainer that lacks rollouts gets them, whatever odd sizes are available.

    What is available is trained within `max_staleness` steps if it fills at most that many batches and one more.
    """
    steered = progress.max_staleness
    max_staleness = registration.max_staleness if steered is None else steered
    if max_staleness is None:
        return None
    fresh = (max_staleness + 1) * registration.batch_size
    return max(0, min(fresh, wanted) - at_hand, missing)


def status_of_env(
    env: RegisteredEnv, live: Sequence[RegisteredEnv], counts: Iterable[GroupCount], batch_size: int, pace: Pace
) -> dict[str, float | int | None]:
    """The answer of `/status-env`. `live` are the environments that share the trainer, `env` among them or not."""
    sharing = {other.env_id: other for other in (*live, env)}
    queued = [count for count in counts if count.state == "queued"]
    own = sum(count.rollouts for count in queued if count.env_id == env.env_id)
    group_size = env.registration.group_size
    own_share = env.registration.min_batch_allocation or 0.0
    paused = pace.over or pace.enough
    return {
        "current_step": pace.current_step,
        "queue_size": pace.queue_size(own + _spare_of_others(env.env_id, queued, sharing, batch_size), group_size),
        "unallocated_fraction": -own_share if paused else _unallocated(sharing.values()),
        "self_queue_size": ENOUGH_OF_ITS_OWN if paused else own // group_size,
        "max_group_size": max((count.size for count in queued), default=1),
        "env_weight": _weight(env, sharing.values()),
        "room": room_of(pace.room, group_size, sorted(sharing).index(env.env_id), len(sharing)),
    }


def room_of(room: int | None, group_size: int, rank: int, environments: int) -> int | None:
    """One environment's share of the room, in rollouts; `rank` counts the live environments' numbers from 0.

    One environment's last group may exceed the room: otherwise a room smaller than a group would never be used.
    """
    if room is None:
        return None
    groups, left_over = divmod(math.ceil(room / group_size), environments)
    return min(room, (groups + (rank < left_over)) * group_size)


def _spare_of_others(
    env_id: int, queued: Iterable[GroupCount], sharing: Mapping[int, RegisteredEnv], batch_size: int
) -> int:
    """Sequences of other environments beyond what a batch takes from each as its minimum."""
    by_env: dict[int | None, int] = {}
    for count in queued:
        if count.env_id != env_id:
            by_env[count.env_id] = by_env.get(count.env_id, 0) + count.rollouts
    for other_id, other in sharing.items():
        reserved = int(batch_size * (other.registration.min_batch_allocation or 0.0))
        if other_id in by_env:
            by_env[other_id] = max(0, by_env[other_id] - reserved)
    return sum(by_env.values())


def _unallocated(sharing: Iterable[RegisteredEnv]) -> float:
    return 1.0 - min(1.0, sum(env.registration.min_batch_allocation or 0.0 for env in sharing))


def _weight(env: RegisteredEnv, sharing: Iterable[RegisteredEnv]) -> float:
    total = sum(other.registration.share for other in sharing)
    return max(MIN_ENV_WEIGHT, env.registration.share / total if total > 0 else 1.0)
