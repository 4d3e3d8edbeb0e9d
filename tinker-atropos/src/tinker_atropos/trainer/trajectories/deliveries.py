"""The trajectory API's batches, decoded into arrays.

The api checked every group when it arrived (`ScoredGroup`). Checking each number again would cost more than the rest
of a step, so only shapes are checked here, during the conversion to arrays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from rl_contract import scored_group
from tinker_atropos.chat.sampling import Floats, Ints
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, Story, TeacherTopK, TokenSequence

MUTE = "set_advantage_to_zero"
"""The one key of `overrides` that Atropos' trainers honor."""

Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    """A batch as delivered by the api. `ids` are those of its groups, in order, for `drop`; `waited` is in seconds."""

    ids: tuple[int, ...]
    groups: tuple[Group, ...]
    waited: float


def read_delivery(content: bytes, waited: float) -> DeliveredBatch | None:
    """Decode an answer of `/batch` in NDJSON; None when it holds no batch. Raises ValueError naming what does not fit.

    Line by line: a group's numbers become arrays while they are in the CPU cache, which halves the time.
    """
    first, *lines = content.split(b"\n")
    try:
        head = orjson.loads(first)
        ids = head.get("ids")
        if ids is None:
            return None
        received_at = head["received_at"]
        if not len(ids) == len(received_at) == len(lines):
            raise ValueError(f"ids names {len(ids)} groups, received_at {len(received_at)}, there are {len(lines)}")
        groups = tuple(read_group(orjson.loads(line), at) for line, at in zip(lines, received_at, strict=True))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return DeliveredBatch(tuple(ids), groups, waited)


def read_group(group: Mapping[str, Any], received_at: float = math.inf) -> Group:
    """One group of the wire format (`ScoredGroup`). Rollouts are numbered in the order of their first sequences."""
    size = len(group["tokens"])
    overrides_S = group.get("overrides") or [{}] * size
    told = group.get("group_overrides") or {}
    rollouts_S = told.get("rollouts") or range(size)
    number = {rollout: index for index, rollout in enumerate(dict.fromkeys(rollouts_S))}
    of_each_sequence = {"masks": group["masks"], "scores": group["scores"], "overrides": overrides_S}
    for name, rows in {**of_each_sequence, "group_overrides.rollouts": rollouts_S}.items():
        if len(rows) != size:
            raise ValueError(f"{name} has {len(rows)} entries for {size} sequences of tokens")
    candidates = max((len(held) for row in _given(group, "distill_token_ids") or () for held in row), default=0)
    return Group(
        sequences_S=tuple(
            _sequence(group, index, overrides, candidates) for index, overrides in enumerate(overrides_S)
        ),
        rollout_of_S=np.array([number[rollout] for rollout in rollouts_S], np.int64),
        unknown_overrides=tuple(sorted({name for overrides in overrides_S for name in overrides} - {MUTE})),
        received_at=received_at,
        story=Story(told.get("item"), told.get("components"), group.get("messages"), told.get("environment")),
    )


def _sequence(group: Mapping[str, Any], index: int, overrides: Mapping[str, Any], candidates: int) -> TokenSequence:
    tokens, advantages_S = group["tokens"][index], _given(group, "advantages")
    length = len(tokens)
    tokens_T = np.fromiter(tokens, np.int64, length)
    marked_T = _row("masks", group["masks"][index], length, np.int64) != scored_group.PROMPT_MASK
    return TokenSequence(
        tokens_T=tokens_T,
        generated_T=marked_T,
        logprobs_T=_reported_logprobs(_given(group, "inference_logprobs"), index, length),
        policy_step_T=np.full(length, UNKNOWN_STEP, np.int64),
        score=float(group["scores"][index]),
        advantages_T=None if advantages_S is None else _row("advantages", advantages_S[index], length, np.float64),
        teacher_logprobs_T=_teacher_logprobs(group, index, tokens_T) if candidates == 1 else None,
        muted=bool(overrides.get(MUTE)),
        marked_T=marked_T,
        teacher_topk=_teacher_topk(group, index, length, candidates) if candidates > 1 else None,
    )


def _reported_logprobs(rows_S: Sequence[Any] | None, index: int, length: int) -> Floats:
    """NaN where unknown: environments write 1.0 there (a logprob is never positive), or send nothing."""
    if rows_S is None:
        return np.full(length, np.nan)
    logprobs_T = _row("inference_logprobs", rows_S[index], length, np.float64)
    logprobs_T[logprobs_T > 0] = np.nan
    return logprobs_T


def _teacher_logprobs(group: Mapping[str, object], index: int, tokens_T: Ints) -> Floats | None:
    """For the tokens that were sampled, of a teacher that scores one token per position (K = 1)."""
    if (found := _candidates(group, index, len(tokens_T), 1)) is None:
        return None
    (ids_T,), (logprobs_T,) = found[0].T, found[1].T
    return np.where((ids_T == tokens_T) & np.isfinite(logprobs_T), logprobs_T, np.nan)


def _teacher_topk(group: Mapping[str, object], index: int, length: int, candidates: int) -> TeacherTopK | None:
    """The teacher's probabilities of what it names, divided by their sum."""
    if (found := _candidates(group, index, length, candidates)) is None:
        return None
    tokens_TK, logprobs_TK = found
    highest_T1 = logprobs_TK.max(axis=-1, keepdims=True)
    odds_TK = np.exp(logprobs_TK - np.where(np.isfinite(highest_T1), highest_T1, 0.0))
    return TeacherTopK(tokens_TK, odds_TK / np.maximum(odds_TK.sum(axis=-1, keepdims=True), 1.0))


def _candidates(group: Mapping[str, Any], index: int, length: int, width: int) -> tuple[Ints, Floats] | None:
    """Token ids and logprobs of a teacher, [T, K]; where it names less than K tokens, 0 and minus infinity."""
    ids_S, logprobs_S = _given(group, "distill_token_ids"), _given(group, "distill_logprobs")
    if ids_S is None or logprobs_S is None:
        return None
    held_T = _row("distill_token_ids", [len(held) for held in ids_S[index]], length, np.int64)
    named_TK = np.arange(width) < held_T[:, None]
    tokens_TK, logprobs_TK = np.zeros(named_TK.shape, np.int64), np.full(named_TK.shape, -np.inf)
    total = int(held_T.sum())
    tokens_TK[named_TK] = _row("distill_token_ids", [*chain.from_iterable(ids_S[index])], total, np.int64)
    logprobs_TK[named_TK] = _row("distill_logprobs", [*chain.from_iterable(logprobs_S[index])], total, np.float64)
    return tokens_TK, logprobs_TK


def _given(group: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """Rows of an optional field. BaseEnv fills in some with only empty entries, which count as not given."""
    rows: Sequence[Any] = group.get(name) or ()
    return rows if any(rows) else None


def _row(name: str, row: Sequence[float], length: int, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    if len(row) != length:
        raise ValueError(f"a row of {name} has {len(row)} positions for {length} tokens")
    return np.fromiter(row, dtype, length)
