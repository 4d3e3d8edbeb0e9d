"""The group as atroposlib 0.4.0 sends it: the one type that the api, the trainer and the environments share.

Field names are the protocol's. Axes: `S` sequences of the group, `T` tokens of one sequence (prompt and answer).
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PROMPT_MASK = -100
"""Value of `masks` at positions that are not trained."""

PROMPT_LOGPROB = 1.0
"""Value of `inference_logprobs` at positions that were not sampled."""

TokenId = Annotated[int, Field(ge=0)]


class Group(BaseModel):
    """Scored sequences that answer one prompt, and are compared with each other.

    Only what makes a group untrainable is refused: `tokens`, `masks` and `scores` must agree in shape. The optional
    lists are passed on as sent, also when an environment fills them in its own way.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    tokens: list[list[TokenId]] = Field(min_length=1, description="[S][T]")
    masks: list[list[int]] = Field(description="[S][T]: PROMPT_MASK or the token")
    scores: list[float] = Field(description="[S]")
    advantages: list[list[float]] | None = Field(default=None, description="[S][T], instead of scores")
    ref_logprobs: list[list[float]] | None = Field(default=None, description="[S][T]")
    messages: Any = None
    generation_params: dict[str, Any] | None = None
    inference_logprobs: list[list[float]] | None = Field(default=None, description="[S][T]: PROMPT_LOGPROB in prompts")
    overrides: list[dict[str, Any]] | None = Field(default=None, description="[S]")
    group_overrides: dict[str, Any] | None = None
    images: Any = None
    env_id: int | None = None
    distill_token_ids: list[list[list[int]]] | None = Field(default=None, description="[S][T][K]")
    distill_logprobs: list[list[list[float]]] | None = Field(default=None, description="[S][T][K]")

    @property
    def size(self) -> int:
        """Number of sequences, S."""
        return len(self.tokens)

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        for name, rows in (("masks", self.masks), ("scores", self.scores)):
            if len(rows) != self.size:
                raise ValueError(f"{name} has {len(rows)} entries for {self.size} sequences of tokens")
        for index, (tokens, mask) in enumerate(zip(self.tokens, self.masks, strict=True)):
            if not tokens:
                raise ValueError(f"tokens[{index}] is empty; a sequence has at least one token")
            if len(mask) != len(tokens):
                raise ValueError(f"masks[{index}] has {len(mask)} positions, tokens[{index}] has {len(tokens)}")
        return self
