"""From the trajectory API to a batch that can be trained on.

Every group of a delivery is checked. Those that cannot be trained are dropped at the api with their reason, and the
api refills the batch, until all of it is usable.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rl_contract.rollout_fates import DROP_REASONS, DropReason
from tinker_atropos.errors import EnvironmentLostError
from tinker_atropos.trainer.data.groups import Group
from tinker_atropos.trainer.trajectories.admission import Admission, Admitted, UnusableError
from tinker_atropos.trainer.trajectories.deliveries import DeliveredBatch

logger = logging.getLogger(__name__)

PATIENCE = 64
"""Unusable groups in a row after which the run ends, except for those of NO_FAULT."""

NO_FAULT: frozenset[DropReason] = frozenset({"stale", "no_gradient"})
"""What is sampled now is fresh, and an item that is always right or always wrong is followed by others."""

MOST_KEPT = 256
"""Dropped groups of one step that are remembered; more of them are only counted."""

Warn = Callable[[str, str | None], None]
"""Show a warning under its topic; None clears it."""


class TrajectoryApi(Protocol):
    """What the collector needs from the trajectory API."""

    async def batch(self, step: int) -> DeliveredBatch | None: ...

    async def drop(self, ids: Sequence[int], reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DroppedGroup:
    """A group that is not trained on. `why` is a sentence."""

    group: Group
    reason: DropReason
    why: str


@dataclass(frozen=True, slots=True)
class Collected:
    """A batch of usable groups, and what it took.

    `unusable` are the groups that were dropped, the first MOST_KEPT of them. `dropped` counts rollouts by reason and
    `dropped_tokens` their generated tokens; `recomputed` counts sequences whose logprobs came from a forward pass;
    `unknown_overrides` counts unsupported keys of `overrides`; `waited` is in seconds.
    """

    groups: tuple[Group, ...]
    dropped: Mapping[DropReason, int]
    dropped_tokens: int
    recomputed: int
    unknown_overrides: int
    waited: float
    unusable: tuple[DroppedGroup, ...] = ()


@dataclass
class Collector:
    """Gets batches, step by step. `dropped` counts rollouts over the life of the process."""

    api: TrajectoryApi
    admission: Admission
    warn: Warn
    dropped: Counter[DropReason] = field(default_factory=Counter)
    _logged: set[str] = field(default_factory=set)
    _unusable_in_a_row: Counter[DropReason] = field(default_factory=Counter)
    _replaced_in_a_row: int = 0
    _dropped_tokens: int = 0
    _unusable: list[DroppedGroup] = field(default_factory=list)

    async def next_batch(self, step: int) -> Collected:
        """Batch `step`, with only usable groups. Raises EnvironmentLostError if nothing usable arrives."""
        dropped_before, tokens_before, waited = self.dropped.copy(), self._dropped_tokens, 0.0
        usable: dict[int, Admitted] = {}
        self._unusable = []
        while True:
            asked = time.monotonic()
            delivery = await self.api.batch(step)
            if delivery is None:
                waited += time.monotonic() - asked
                continue
            waited += delivery.waited
            groups = dict(zip(delivery.ids, delivery.groups, strict=True))
            await self._look_at({key: group for key, group in groups.items() if key not in usable}, step, usable)
            if usable.keys() >= groups.keys():
                admitted = [usable[key] for key in groups]
                dropped = self.dropped - dropped_before
                for reason in DROP_REASONS:  # the problem is over; with replaced groups, any batch shows that
                    if reason == "no_gradient" or not dropped[reason]:
                        self.warn(reason, None)
                return Collected(
                    groups=tuple(one.group for one in admitted),
                    dropped=dropped,
                    dropped_tokens=self._dropped_tokens - tokens_before,
                    recomputed=sum(one.recomputed for one in admitted),
                    unknown_overrides=self._note_overrides(admitted),
                    waited=waited,
                    unusable=tuple(self._unusable),
                )

    async def _look_at(self, groups: Mapping[int, Group], step: int, usable: dict[int, Admitted]) -> None:
        """Add those that can be trained to `usable`, and drop the others at the api."""
        # One by one: most are admitted without waiting, and a task for each would let other work come between.
        unusable: dict[int, UnusableError] = {}
        for key, group in groups.items():
            try:
                usable[key] = await self.admission.admit(group, step)
            except UnusableError as error:
                unusable[key] = error
                self._note_unusable(group, error)
            else:
                self._unusable_in_a_row.clear()
                self._replaced_in_a_row = 0
        for reason in sorted({error.reason for error in unusable.values()}):
            await self.api.drop([key for key, error in unusable.items() if error.reason == reason], reason)
        if self._unusable_in_a_row.total() >= PATIENCE:
            counts = ", ".join(f"{count} {reason}" for reason, count in self._unusable_in_a_row.most_common())
            raise EnvironmentLostError(
                f"nothing that the environment sends can be trained on: the last groups were all dropped ({counts}); "
                f"the trainer's log says why"
            )

    def _note_unusable(self, group: Group, why: UnusableError) -> None:
        self.dropped[why.reason] += group.rollout_count
        self._dropped_tokens += sum(int(np.count_nonzero(sequence.generated_T)) for sequence in group.sequences_S)
        if len(self._unusable) < MOST_KEPT:
            self._unusable.append(DroppedGroup(why.group or group, why.reason, str(why)))
        if why.reason not in NO_FAULT:
            self._unusable_in_a_row[why.reason] += 1
        if why.reason == "no_gradient":
            self._note_replaced()
            return
        self._say(why.reason, f"a group was dropped as {why.reason}: {why}")

    def _note_replaced(self) -> None:
        """As intended, unless nothing else comes."""
        self._replaced_in_a_row += 1
        if self._replaced_in_a_row >= PATIENCE:
            self._say(
                "no_gradient",
                f"{PATIENCE} groups or more in a row had no gradient and were replaced (trainer.dynamic_sampling): the "
                f"task is solved, too hard, or its reward does not tell answers apart",
            )

    def _note_overrides(self, admitted: Sequence[Admitted]) -> int:
        unknown = [name for one in admitted for name in one.group.unknown_overrides]
        for name in unknown:
            self._say(
                f"override {name}", f"overrides has the key {name!r}, which nothing here knows: it changes nothing"
            )
        return len(unknown)

    def _say(self, topic: str, sentence: str) -> None:
        """Warn, and log it the first time."""
        self.warn(topic, sentence)
        if topic not in self._logged:
            self._logged.add(topic)
            logger.warning("%s", sentence)
