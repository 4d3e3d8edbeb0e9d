"""Rollouts: those that have a score, those that failed, and the group that is made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

import orjson

from rl_contract.rollout_records import LONGEST_ITEM
from tinker_atropos.environments.rollout.conversation import SampledSequence
from tinker_atropos.environments.rollout.prompt_tokens import Message

FailureKind = Literal["raised", "timeout", "transport"]
FAILURE_KINDS: Final[tuple[FailureKind, ...]] = get_args(FailureKind)


class TransportError(Exception):
    """What an environment talks to, such as a server of its own, cannot be reached or has left."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at an item. It has several sequences if the prompt of a later turn did not extend the first. For
    people to read are `messages`, the conversation if it is kept, and `components`, the parts of the score by name.
    """

    sequences: list[SampledSequence]
    score: float
    messages: Sequence[Message] = field(default=(), kw_only=True)
    components: Mapping[str, float] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True)
class FailedRollout:
    """An attempt without a score: the environment's code raised, took too long, or could not reach what it talks to.
    `tokens` were sampled for it, and are lost.
    """

    kind: FailureKind
    message: str
    tokens: int = 0


Outcome: TypeAlias = Rollout | FailedRollout


def failure_kind(error: BaseException) -> FailureKind:
    """A TimeoutError is an OSError, too, and libraries derive their connection errors from OSError."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return "transport" if isinstance(error, TransportError | ConnectionError) else "raised"


def scored_group(rollouts: Sequence[Rollout], group_size: int | None = None, *, item: Any = None) -> dict[str, Any]:
    """The group in Atropos' form. If rollouts have several sequences, `group_overrides` maps sequences to rollouts. It
    also says how many sequences there are if the group has fewer rollouts than `group_size`, and what people read:
    `item` and the `components` of each rollout.
    """
    owned = [(index, sequence) for index, rollout in enumerate(rollouts) for sequence in rollout.sequences]
    group: dict[str, Any] = {
        "tokens": [sequence.tokens for _, sequence in owned],
        "masks": [sequence.masks for _, sequence in owned],
        "inference_logprobs": [sequence.logprobs for _, sequence in owned],
        "scores": [rollouts[index].score for index, _ in owned],
    }
    if any(rollout.messages for rollout in rollouts):
        group["messages"] = [list(rollouts[index].messages) for index, _ in owned]
    if len(owned) != (group_size or len(rollouts)) or len(owned) > len(rollouts):
        group["group_overrides"] = {"group_size": len(owned), "rollouts": [index for index, _ in owned]}
    told: dict[str, Any] = {} if item is None else {"item": shown_item(item)}
    if any(rollout.components for rollout in rollouts):
        told["components"] = [dict(rollout.components) for rollout in rollouts]
    if told:
        group["group_overrides"] = {**group.get("group_overrides", {}), **told}
    return group


def shown_item(item: object) -> object:
    """The item as JSON, which whatever writes groups can write, else as Python shows it; a long one is cut off."""
    try:
        text = orjson.dumps(item, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        return repr(item)[:LONGEST_ITEM]
    if len(text) > LONGEST_ITEM:
        return text[:LONGEST_ITEM].decode(errors="ignore")
    return orjson.loads(text)
