"""What an environment has done so far: its groups, their rollouts one by one, and in how many of the latest groups,
sent or not, all rollouts were right, or all wrong. Written in its thread, read in the heartbeat's thread.

Why a group was dropped before it was sent is determined by atroposlib's rules, in its order
(`BaseEnv.handle_send_to_api`).
"""

import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Final, Literal, get_args

from rl_contract.scored_group import PROMPT_MASK
from tinker_atropos.environments.rollout.rollouts import FAILURE_KINDS, FailedRollout, FailureKind

RECENT_ROLLOUTS: Final = 200
MIN_ROLLOUTS: Final = 20
TOO_MANY: Final = 0.2
"""Share of the recent rollouts, once there are MIN_ROLLOUTS, past which their failing is a warning."""


@dataclass
class RolloutCounts:
    """Written in the environment's thread, read in the heartbeat's."""

    made: int = 0
    failed_by: Counter[FailureKind] = field(default_factory=Counter)
    last_failure: str = ""
    _recent: deque[FailureKind | None] = field(default_factory=lambda: deque(maxlen=RECENT_ROLLOUTS))

    def were_scored(self, rollouts: int) -> None:
        self.made += rollouts
        self._recent.extend([None] * rollouts)

    def has_failed(self, rollout: FailedRollout) -> None:
        self.failed_by[rollout.kind] += 1
        self.last_failure = rollout.message
        self._recent.append(rollout.kind)

    @property
    def warning(self) -> str | None:
        """A sentence for the run's status while too many fail; None otherwise."""
        recent = list(self._recent)
        kinds = Counter(kind for kind in recent if kind is not None)
        failed = kinds.total()
        if len(recent) < MIN_ROLLOUTS or failed <= TOO_MANY * len(recent):
            return None
        by_kind = ", ".join(f"{count} {WHY[kind]}" for kind, count in kinds.most_common())
        return f"{failed} of the last {len(recent)} rollouts failed ({by_kind}); the last one with {self.last_failure}"

    def to_metrics(self) -> dict[str, float]:
        by_kind = {f"env/rollouts_failed_{kind}": float(self.failed_by[kind]) for kind in FAILURE_KINDS}
        return {"env/rollouts_failed": float(self.failed_by.total()), **by_kind}


WHY: Final[dict[FailureKind, str]] = {
    "raised": "raised an error",
    "timeout": "took too long",
    "transport": "lost their server",
}


Mix = Literal["all_right", "all_wrong", "mixed"]
MIXES: Final[tuple[Mix, ...]] = get_args(Mix)
RECENT_GROUPS: Final = 100

IsCorrect = Callable[[float], bool]


def has_full_reward(reward: float) -> bool:
    """The test for environments that do not say which rewards are right."""
    return reward >= 1.0


logger = logging.getLogger(__name__)

HOPELESS_AFTER = 20
"""This many failed or refused groups in a row, with none accepted before, end the environment."""

STALLED_AFTER = 20
"""This many filtered groups in a row are reported."""

MAX_KINDS = 20

FilterReason = Literal["equal", "too_long", "wrong_size", "by_environment"]
FailureReason = Literal["raised", "empty", "overdue", "undelivered"]
FILTER_REASONS: tuple[FilterReason, ...] = get_args(FilterReason)
WHY_FILTERED: Mapping[FilterReason, str] = {
    "equal": "all rewards within each were equal, so there is nothing to learn from them; choose items of another "
    "difficulty, or a larger group_size",
    "by_environment": "the environment returned none of them; most do that when all rewards are equal: choose items of "
    "another difficulty, or a larger group_size",
    "too_long": "a rollout was longer than max_token_length",
    "wrong_size": "some of their rollouts were missing",
}
FAILURE_REASONS: tuple[FailureReason, ...] = get_args(FailureReason)


@dataclass
class Counters:
    """Groups made, and what happened to them: filtered (by atroposlib or the environment), or kept (sent), and of these
    accepted (200) or refused (4xx). Groups that produced nothing have failed. `kept_all_right` were sent though their
    rewards are equal (see `EqualGroups`).
    """

    made: int = 0
    kept: int = 0
    kept_all_right: int = 0
    accepted: int = 0
    refused: int = 0
    filtered_by: Counter[FilterReason] = field(default_factory=Counter)
    failed_by: Counter[FailureReason] = field(default_factory=Counter)
    refused_by: Counter[str] = field(default_factory=Counter)
    tokens_filtered: int = 0
    tokens_failed: int = 0
    filtered_in_row: Counter[FilterReason] = field(default_factory=Counter)
    failures_in_row: int = 0
    last_failure: str | None = None
    rollouts: RolloutCounts = field(default_factory=RolloutCounts)
    _mixes: deque[Mix] = field(default_factory=lambda: deque(maxlen=RECENT_GROUPS))
    _rewards: deque[float] = field(default_factory=deque)
    _was_kept: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT_GROUPS))
    _reported: dict[str, float] = field(default_factory=dict)

    @property
    def filtered(self) -> int:
        return self.filtered_by.total()

    @property
    def failed(self) -> int:
        return self.failed_by.total()

    def scored(self, rewards: Sequence[object], is_correct: IsCorrect = has_full_reward) -> None:
        """A group came out of a rollout, with the rewards of its rollouts, before anything is filtered."""
        self.made += 1
        self.rollouts.were_scored(len(rewards))
        known = finite_rewards(rewards)
        self._rewards.extend(known)
        if known:
            right = sum(map(is_correct, known))
            self._mixes.append("all_right" if right == len(known) else "mixed" if right else "all_wrong")

    def was_kept(self) -> None:
        """A group was passed on to the trajectory API."""
        self.failures_in_row = 0
        self.filtered_in_row.clear()
        self._was_kept.append(True)

    def was_filtered(self, reason: FilterReason, tokens: int) -> None:
        """A group was dropped before it was sent; `tokens` were generated for it."""
        self.failures_in_row = 0
        self.filtered_by[reason] += 1
        self.tokens_filtered += tokens
        self.filtered_in_row[reason] += 1
        if self.filtered_in_row.total() == STALLED_AFTER:
            logger.warning("%s", self.stalled)
        self._was_kept.append(False)

    def has_failed(self, reason: FailureReason, description: str, tokens: int = 0) -> None:
        """A group produced nothing."""
        self.failed_by[reason] += 1
        self.failures_in_row += 1
        self.tokens_failed += tokens
        self.last_failure = description

    def rollout_failed(self, rollout: FailedRollout) -> None:
        """One rollout has no score. Its group may become whole with another one, or has failed as well."""
        self.rollouts.has_failed(rollout)
        logger.info("a rollout failed: %s", rollout.message)

    def was_refused(self, groups: int, reason: str) -> bool:
        """The trajectory API answered 4xx. True if it is the first refusal of its kind."""
        kind = re.sub(r"\d+(\.\d+)?", "N", reason)
        if kind not in self.refused_by and len(self.refused_by) >= MAX_KINDS:
            kind = "other"
        self.refused += groups
        self.refused_by[kind] += groups
        self.last_failure = reason
        return self.refused_by[kind] == groups

    @property
    def hopeless(self) -> bool:
        """Whether no group was ever accepted, and this is not going to change."""
        return not self.accepted and max(self.failures_in_row, self.refused) >= HOPELESS_AFTER

    @property
    def stalled(self) -> str | None:
        """Why nothing is trained even though groups are made; None while groups are kept."""
        total = self.filtered_in_row.total()
        if total < STALLED_AFTER:
            return None
        causes = [
            (f"{count} because " if count < total else "because ") + WHY_FILTERED[reason]
            for reason, count in self.filtered_in_row.most_common()
        ]
        return f"the last {total} groups were dropped, {'; '.join(causes)}"

    def take_metrics(self) -> dict[str, float]:
        """The runner's metrics: the mean reward since the last call, and the counts; empty if nothing is new."""
        rewards = [self._rewards.popleft() for _ in range(len(self._rewards))]
        counts = self._counts()
        if not rewards and counts == self._reported:
            return {}
        self._reported = counts
        return counts | ({"env/reward_mean": sum(rewards) / len(rewards)} if rewards else {})

    def _counts(self) -> dict[str, float]:
        counts: dict[str, float] = {
            "env/groups_kept": self.kept,
            "env/groups_kept_all_right": self.kept_all_right,
            "env/groups_filtered": self.filtered,
            "env/groups_refused": self.refused,
            "env/groups_failed": self.failed,
            "env/groups_filtered_in_row": self.filtered_in_row.total(),
            "env/tokens_filtered": self.tokens_filtered,
            "env/tokens_failed": self.tokens_failed,
        }
        counts |= {f"env/groups_filtered_{reason}": self.filtered_by[reason] for reason in FILTER_REASONS}
        counts |= self.rollouts.to_metrics()
        if recent := list(self._mixes):
            counts |= {f"env/groups_{mix}": recent.count(mix) / len(recent) for mix in MIXES}
        counts |= {f"env/groups_failed_{reason}": self.failed_by[reason] for reason in FAILURE_REASONS}
        if self._was_kept:
            counts["env/groups_kept_ratio"] = sum(self._was_kept) / len(self._was_kept)
        return counts

    def to_wire(self) -> dict[str, object]:
        """The counts for `/status` of the ops port."""
        return {
            "groupsMade": self.made,
            "groupsKept": self.kept,
            "groupsAccepted": self.accepted,
            "groupsRefused": self.refused,
            "groupsFiltered": dict(self.filtered_by),
            "groupsFailed": dict(self.failed_by),
            "refusals": dict(self.refused_by),
            "stalled": self.stalled,
            "lastFailure": self.last_failure,
            "rolloutsFailed": dict(self.rollouts.failed_by),
        }


def filter_reason(group: Any, group_size: int, max_token_len: int, *, drops_equal: bool) -> FilterReason | None:
    """None if nothing speaks against it. `max_token_len` 0 or less: no limit."""
    if not isinstance(group, Mapping):
        return "wrong_size"
    tokens, overrides = group.get("tokens") or [], group.get("group_overrides") or {}
    if len(tokens) != overrides.get("group_size", group_size):
        return "wrong_size"
    if drops_equal and len(set(group.get("scores") or [])) == 1:
        return "equal"
    if max_token_len > 0 and any(len(row) >= max_token_len for row in tokens):
        return "too_long"
    return None


def rewards(group: Any) -> list[Any]:
    """One reward per rollout: all sequences of a rollout carry its reward."""
    if not isinstance(group, Mapping):
        return []
    scores = list(group.get("scores") or [])
    owners = (group.get("group_overrides") or {}).get("rollouts")
    if not isinstance(owners, list) or len(owners) != len(scores):
        return scores
    return list(dict(zip(owners, scores, strict=True)).values())


def finite_rewards(rewards: Sequence[object]) -> list[float]:
    """Without values that are not numbers: the trajectory API refuses that."""
    return [float(each) for each in rewards if isinstance(each, Real) and math.isfinite(each)]


def generated_tokens(group: object) -> int:
    """Tokens of a group that the policy generated."""
    masks = (group.get("masks") or []) if isinstance(group, Mapping) else []
    return sum(mask != PROMPT_MASK for row in masks for mask in row)
