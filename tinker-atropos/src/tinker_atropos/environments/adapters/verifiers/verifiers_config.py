"""The fields of the environments `verifiers/…`. This file is read for the catalog: it imports nothing of verifiers."""

from typing import Any

from pydantic import Field

from tinker_atropos.environments.base import EnvironmentConfig


class VerifiersConfig(EnvironmentConfig):
    """The fields that all tasksets have. A taskset's own are in `taskset`, and checked by its own config class."""

    taskset: dict[str, Any] = Field(default={}, description="The taskset's own fields, by name.")
    held_out_taskset: dict[str, Any] = Field(
        default={},
        description="The taskset's fields that differ for held-out tasks, such as {split: test} or {seed: 1}. Without "
        "them its first tasks are held out.",
    )
    env_id: str = Field(
        default="", description="Another environment of verifiers that plays the tasks, such as best-of-n."
    )
    env_config: dict[str, Any] = Field(
        default={}, description="Fields of the taskset's environment, such as those of its agents, by name."
    )
    train_items: int | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="Most tasks to train on. Without it: all, or 1,000 of a taskset without an end.",
    )
    max_turns: int = Field(default=10, gt=0, description="Most answers of each agent in one episode.")
    timeout_seconds: float = Field(default=600.0, gt=0, description="Longest time for an episode, with its scoring.")
    renderer: str = Field(
        default="default",
        description="What makes tokens of messages: default (the tokenizer's chat template), or one of the renderers "
        "for a family of models, such as qwen3, which keep a conversation in one sequence.",
    )
    success_reward: float = Field(
        default=1.0, allow_inf_nan=False, description="The reward from which on an episode counts as correct."
    )
