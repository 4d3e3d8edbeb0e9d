"""The fields that every environment of our base classes has, which a run sets in its section `env`."""

from typing import Literal, Self

from atroposlib.envs.base import APIServerConfig, BaseEnvConfig
from pydantic import Field, model_validator

APIServerConfig.model_fields["api_key"].repr = False  # BaseEnv's command line prints its configuration


class EnvironmentConfig(BaseEnvConfig):  # type: ignore[misc]  # atroposlib ships no types
    """The fields of an environment. Authors subclass it to add their own."""

    eval_items: int = Field(default=250, gt=0, description="How many items of each held-out set an evaluation samples.")
    eval_samples: int = Field(default=2, gt=0, description="How many completions per held-out item.")
    eval_greedy: bool = Field(
        default=False, description="Whether an evaluation answers each item once more, at temperature 0."
    )
    item_seed: int | None = Field(
        default=None, description="Seed of the order in which items are trained; null: the run's, trainer.seed."
    )
    difficulty_pools: bool = Field(
        default=False,
        description="Whether items whose last group earned all the same, and taught nothing, are drawn less often.",
    )
    teacher_top_k: int = Field(
        default=0,
        ge=0,
        le=128,  # as many as a group's row may hold
        description="How many of its likeliest tokens a teacher names for each sampled one, to be learned; 1: it "
        "scores the sampled token; 0: there is no teacher.",
    )
    teacher_api: Literal["openai", "sglang", "vllm"] = Field(
        default="openai",
        description="How it is asked: vLLM's completions, as tinker-atropos teacher has them, or SGLang's or Atropos' "
        "generate.",
    )
    teacher_model: str = Field(default="", description="Its name at the server, if that has several models.")

    @model_validator(mode="after")
    def _teacher_teaches_all_groups(self) -> Self:
        """What it says does not depend on rewards: groups of equal ones are sent, too."""
        if self.teacher_top_k:
            self.ensure_scores_are_not_same = False
        return self
