"""What environments are told of the run, so that they make enough groups, no surplus, and end with it. Pure.

An unmodified BaseEnv ends when `current_step + queued batches > total_steps`, stops making rollouts while the queue
holds `max_batches_offpolicy` batches, and shares a batch by `unallocated_fraction`. So:

* `current_step` counts trained steps; when the run is over it is `total_steps + 1`, and the environment ends.
* The reported queue never reaches past the last step: the environment must not leave before the trainer is done.
* When enough groups for the rest exist, the reported queue holds all the rest and no share of a batch is free. The
  queue alone would not do: near the end a queue long enough to pause the environment would end it.
* A trainer that waits in vain is never answered by a full queue, whatever odd sizes the queue holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinker_atropos.trajectory_api.batching import first_exact
from tinker_atropos.trajectory_api.leases import LeaseView
from tinker_atropos.trajectory_api.records import GroupCount, RegisteredEnv
from tinker_atropos.trajectory_api.requests import ProgressReport, Registration

MIN_ENV_WEIGHT = 0.01
ENOUGH_OF_ITS_OWN = 1_000_000
"""A `self_queue_size` above every minimum allocation."""


def over_reason(progress: ProgressReport, trainer: LeaseView) -> str | None:
    """Why the run is over, or None while it goes on."""
    if progress.training_done:
        return progress.reason or "training is done"
    if trainer.gone or trainer.state == "done":
        return f"the trainer is {trainer.state}" + (f": {trainer.reason}" if trainer.reason else "")
    return None


@dataclass(frozen=True, slots=True)
class Pace:
    """What the run still needs. `sequences_left` is None before a trainer has registered."""

    over: bool
    enough: bool
    current_step: int
    sequences_left: int | None
    starving_below: int | None

    def queue_size(self, sequences: int, group_size: int) -> int:
        """The queue to report, in groups of `group_size`."""
        if self.over:
            return 0
        if self.sequences_left is not None:
            sequences = self.sequences_left if self.enough else min(sequences, self.sequences_left)
        if self.starving_below is not None:
            sequences = min(sequences, max(0, self.starving_below - group_size))
        return sequences // group_size


def pace(
    registration: Registration | None,
    progress: ProgressReport,
    counts: Sequence[GroupCount],
    *,
    over: bool,
    starving: bool,
) -> Pace:
    """`starving`: the trainer's last request for a batch was in vain."""
    if registration is None:
        return Pace(over=over, enough=False, current_step=0, sequences_left=None, starving_below=None)
    steps_left = max(0, registration.num_steps - progress.steps_trained)
    sequences_left = steps_left * registration.batch_size
    at_hand = sum(count.sequences for count in counts if count.state in ("queued", "delivered"))
    starving = starving and steps_left > 0 and not _holds_batch(counts, registration.batch_size)
    return Pace(
        over=over,
        enough=at_hand >= sequences_left and not starving,
        current_step=registration.num_steps + 1 if over else progress.steps_trained,
        sequences_left=sequences_left,
        starving_below=registration.batch_size if starving else None,
    )


def _holds_batch(counts: Iterable[GroupCount], batch_size: int) -> bool:
    sizes = [count.size for count in counts if count.state == "queued" for _ in range(count.groups)]
    return first_exact(sizes, batch_size) is not None


def status_of_env(
    env: RegisteredEnv, live: Sequence[RegisteredEnv], counts: Iterable[GroupCount], batch_size: int, pace: Pace
) -> dict[str, float | int]:
    """The answer of `/status-env`. `live` are the environments that share the trainer, `env` among them or not."""
    sharing = {other.env_id: other for other in (*live, env)}
    queued = [count for count in counts if count.state == "queued"]
    own = sum(count.sequences for count in queued if count.env_id == env.env_id)
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
    }


def _spare_of_others(
    env_id: int, queued: Iterable[GroupCount], sharing: Mapping[int, RegisteredEnv], batch_size: int
) -> int:
    """Sequences of other environments beyond what a batch takes from each as its minimum."""
    by_env: dict[int | None, int] = {}
    for count in queued:
        if count.env_id != env_id:
            by_env[count.env_id] = by_env.get(count.env_id, 0) + count.sequences
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
