"""Rollouts that are not trained, on their way to the trainer, who keeps them for people to read.

A report costs the run nothing: there is room for a few, what does not fit is counted with its reason, and what the
trainer does not take is dropped.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Literal

from tinker_atropos.environments.runner.reporting.counters import FilterReason

MAX_GROUPS: Final = 4_096
"""Groups that wait to be sent: those of a large evaluation come all at once."""

MAX_LOST: Final = 64
DROPPED_PER_STEP: Final = 8
"""Groups that are sent whole of those that were dropped while one step was collected; of more only the reason."""

MAX_WHY: Final = 500

WHY_UNSENT: Final[Mapping[FilterReason, str]] = {
    "equal": "all rollouts of the group earned the same: there is nothing to learn from it",
    "too_long": "a rollout is as long as env.max_token_length, or longer",
    "wrong_size": "some of the group's rollouts are missing",
    "by_environment": "the environment kept it back",
}
"""A sentence for each reason for which a group is not sent."""


@dataclass
class _Lost:
    what: Literal["rollout", "group"]
    reason: str
    why: str
    count: int
    tokens: int

    def to_wire(self) -> dict[str, object]:
        told = {"what": self.what, "reason": self.reason, "why": self.why, "count": self.count}
        return told | ({"tokens": self.tokens} if self.tokens else {})


@dataclass
class RolloutReports:
    """Written in the environment's thread, read in the heartbeat's."""

    _groups: deque[dict[str, Any]] = field(default_factory=deque)
    _lost: deque[_Lost] = field(default_factory=lambda: deque(maxlen=MAX_LOST))
    _lock: Lock = field(default_factory=Lock)
    _step: int = -1
    _sent_whole: int = 0

    def evaluated(
        self, step: int, group: Mapping[str, object], sets: Sequence[str] = (), *, greedy: bool = False
    ) -> None:
        """A group of the held-out sets of these names, sampled from the weights after `step`. `greedy`: at temperature
        0, beside others of the same item.
        """
        if len(self._groups) < MAX_GROUPS:
            told = {"fate": "evaluated", "step": step, "group": group}
            self._groups.append({**told, "sets": list(sets), "greedy": greedy})
        else:
            self.lost("group", "not_kept", f"more than {MAX_GROUPS} groups waited to be kept: this one was evaluated")

    def dropped(self, step: int, reason: str, why: str, group: Any) -> None:
        """A group that is not sent to be trained, while `step` is collected."""
        if step != self._step:
            self._step, self._sent_whole = step, 0
        has_room = self._sent_whole < DROPPED_PER_STEP and len(self._groups) < MAX_GROUPS
        whole = isinstance(group, Mapping) and has_room
        if whole:
            self._sent_whole += 1
            self._groups.append({"fate": "dropped", "reason": reason, "why": why[:MAX_WHY], "group": group})
        else:
            self.lost("group", reason, why)

    def lost(self, what: Literal["rollout", "group"], reason: str, why: str, tokens: int = 0) -> None:
        """A rollout or a group that came to nothing."""
        why = why[:MAX_WHY].encode(errors="replace").decode()  # a file name may have bytes that are not text
        with self._lock:
            last = self._lost[-1] if self._lost else None
            if last is not None and (last.what, last.reason, last.why) == (what, reason, why):
                last.count += 1
                last.tokens += tokens
            else:
                self._lost.append(_Lost(what, reason, why, 1, tokens))

    def take(self) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """All groups and all losses that wait, as `POST /rl/rollouts` knows them; they wait no longer."""
        groups = [self._groups.popleft() for _ in range(len(self._groups))]
        with self._lock:
            lost = [each.to_wire() for each in self._lost]
            self._lost.clear()
        return groups, lost
