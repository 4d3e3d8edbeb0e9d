"""Why atroposlib dropped a group before it was sent: its own rules, in its order (BaseEnv.handle_send_to_api). Pure."""

from collections.abc import Mapping
from typing import Any

from tinker_atropos.environments.runner.counters import FilterReason
from tinker_atropos.scored_group import PROMPT_MASK


def filter_reason(group: Any, group_size: int, max_token_len: int, *, drops_equal: bool) -> FilterReason | None:
    """None when atroposlib would have sent it. `max_token_len` 0 or less: no limit."""
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


def generated_tokens(group: Any) -> int:
    """Tokens of a group that the policy generated."""
    masks = (group.get("masks") or []) if isinstance(group, Mapping) else []
    return sum(mask != PROMPT_MASK for row in masks for mask in row)
