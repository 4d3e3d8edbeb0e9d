"""Whether two runs were evaluated on the same items, in the same way: only then do their figures compare. Pure."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rl_operator.api.value_text import text_of

Settings = Mapping[str, Any]
"""What is in force for a run: `environment`, `runtime`, `config.…`, `tinker.…`."""

TRAINING_ONLY: Final = frozenset(
    f"config.{name}"
    for name in (
        "total_steps", "group_size", "batch_size", "max_batches_offpolicy", "steps_per_eval", "item_seed",
        "difficulty_pools", "tokenizer_name", "inference_weight", "ensure_scores_are_not_same", "min_batch_allocation",
        "max_num_workers", "max_num_workers_per_node", "max_eval_workers", "worker_timeout",
        "eval_handling", "eval_limit_ratio", "include_messages", "min_items_sent_before_logging",
        "num_rollouts_to_keep", "num_rollouts_per_group_for_logging", "data_path_to_save_groups",
        "data_dir_to_save_evals", "eval_greedy", "use_wandb", "wandb_name",
    )
)  # fmt: skip
"""Fields of every environment that say how it is trained, how often it is evaluated, or what is logged. All others may
say what is asked: also `eval_items`, `max_token_length`, and whatever an environment adds, such as a `seed`.
"""

BESIDE_CONFIG: Final = ("environment", "files", "tinker.eval_metric")


def held_out_settings(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Those that decide what is asked in an evaluation, how it is answered, and what the figure is."""
    for name, value in sorted(settings.items()):
        if name in BESIDE_CONFIG or (name.startswith("config.") and name not in TRAINING_ONLY):
            yield name, value


def fingerprint(settings: Settings) -> str:
    """8 hex digits; equal ones mean the same held-out set. 1.0 is 1."""
    canonical = json.dumps([(name, text_of(value)) for name, value in held_out_settings(settings)])
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def held_out_differences(left: Settings, right: Settings) -> tuple[str, ...]:
    """The names of those that differ."""
    sides = [{name: text_of(value) for name, value in held_out_settings(each)} for each in (left, right)]
    return tuple(sorted(name for name in sides[0].keys() | sides[1].keys() if sides[0].get(name) != sides[1].get(name)))
