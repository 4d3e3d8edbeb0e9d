"""What environments report of rollouts that are not trained: `POST /rl/rollouts` of the inference server.

They may be untrusted code: a report is bounded, checked as every group is (`ScoredGroup`), and only ever written to
rollout files.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rl_contract.scored_group import ScoredGroup

MAX_GROUPS = 64
MAX_LOST = 256
MAX_SETS = 32
Sentence = Annotated[str, Field(max_length=2_000)]
Word = Annotated[str, Field(max_length=64)]


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LostRollouts(_Report):
    """`count` in a row that never came to a group, all for one reason."""

    what: Literal["rollout", "group"]
    reason: Word
    why: Sentence
    item: Any = None
    count: int = Field(default=1, ge=1, lt=2**31)
    tokens: int | None = Field(default=None, ge=0, lt=2**53)


class AnsweredGroup(ScoredGroup):
    """A group that is not trained: what its answers earned may be unknown, of all of them."""

    scores: list[float | None] = Field(description="[S], equal within a rollout")  # type: ignore[assignment]


class UntrainedGroup(_Report):
    """A group of the held-out sets of these names, which was evaluated at `step`, or one that the environment dropped.
    `worth`: what the held-out figure counts each rollout as; empty: not known. `greedy`: sampled at temperature 0,
    beside others of the same item.
    """

    fate: Literal["evaluated", "dropped"]
    step: int | None = Field(default=None, ge=0, lt=2**31)
    reason: Word | None = None
    why: Sentence | None = None
    sets: list[Word] = Field(default=[], max_length=MAX_SETS)
    worth: list[float] = []
    greedy: bool = False
    group: AnsweredGroup

    @model_validator(mode="after")
    def _says_why(self) -> "UntrainedGroup":
        if self.fate == "evaluated" and self.step is None:
            raise ValueError("step is missing: the step of the weights that were evaluated")
        if self.fate == "dropped" and self.step is not None:
            raise ValueError(f"step is {self.step}: a dropped group has none, leave it out")
        if self.fate == "dropped" and not self.reason:
            raise ValueError("reason is missing: why the group was dropped")
        if self.worth and len(self.worth) != self.group.rollout_count:
            raise ValueError(f"worth has {len(self.worth)} numbers for {self.group.rollout_count} rollouts")
        if None in self.group.scores and (self.fate == "dropped" or set(self.group.scores) != {None}):
            raise ValueError("group.scores has null: only the answers of an evaluation may have no scores, all of them")
        return self


class RolloutReport(_Report):
    """The body of `POST /rl/rollouts`. `environment` is the index of the reporting environment."""

    environment: int = Field(default=0, ge=0, lt=2**31)
    groups: list[UntrainedGroup] = Field(default=[], max_length=MAX_GROUPS)
    lost: list[LostRollouts] = Field(default=[], max_length=MAX_LOST)
