"""The section `env` of a run's config file, as far as trainer, API and environment have to agree on it."""

from pydantic import BaseModel, ConfigDict, Field

from rl_contract.trainer_settings import MOST_STEPS, MOST_TOKENS, NEVER


class SharedEnvSection(BaseModel):
    """The fields of `env` that trainer, api and environment must agree on. Others pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    total_steps: int = Field(ge=1, le=MOST_STEPS, description="steps to train")
    group_size: int = Field(ge=1, le=65_536, description="rollouts of one item, which are compared with each other")
    batch_size: int = Field(ge=1, le=1_000_000, description="rollouts per optimizer step, a multiple of group_size")
    tokenizer_name: str = Field(description="the tokenizer, and the model unless openai names one")
    max_token_length: int = Field(ge=1, le=MOST_TOKENS, description="longest rollout, in tokens")
    max_batches_offpolicy: int = Field(
        default=3,
        ge=1,
        le=10_000,
        description="batches that may wait to be trained; of these, none older than the trainer's max_staleness, "
        "which wins",
    )
    tool_call_parser: str | None = Field(default=None, description="a tool format; null: that of the model's family")
    steps_per_eval: int = Field(default=100, ge=0, le=NEVER, description="steps between evaluations; 0: none at all")

    def evaluates_at(self, step: int) -> bool:
        """Whether the weights after a step are to be evaluated."""
        return bool(self.steps_per_eval) and (step % self.steps_per_eval == 0 or step == self.total_steps)
