"""The section `env`, as far as it is shared."""

from pydantic import BaseModel, ConfigDict, Field


class SharedEnvSection(BaseModel):
    """The fields of `env` that trainer, api and environment must agree on. Others pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    total_steps: int = Field(gt=0)
    group_size: int = Field(gt=0)
    batch_size: int = Field(gt=0, description="rollouts per optimizer step, a multiple of group_size")
    tokenizer_name: str
    max_token_length: int = Field(gt=0)
    max_batches_offpolicy: int = Field(default=3, ge=1, description="bounds the queue, in batches")
    tool_call_parser: str | None = Field(default=None, description="a tool format; null: that of the model's family")
    steps_per_eval: int = Field(default=100, ge=0, description="steps between evaluations; 0: none at all")

    def evaluates_at(self, step: int) -> bool:
        """Whether the weights after a step are to be evaluated."""
        return bool(self.steps_per_eval) and (step % self.steps_per_eval == 0 or step == self.total_steps)
