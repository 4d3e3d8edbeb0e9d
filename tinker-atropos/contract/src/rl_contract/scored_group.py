"""The group as atroposlib 0.4.0 sends it: the one type shared by the api, the trainer and the environments.

Field names are the protocol's. Axes: `S` sequences of the group, `T` tokens of one sequence (prompt and answer), `K`
candidates of a teacher for the token at a position, at most; none where it says nothing. A rollout gives one sequence,
or several when a later prompt does not extend the earlier one: then `group_overrides` maps them (our extension):
`{"group_size": S, "rollouts": [rollout of each sequence]}`.
"""

from collections.abc import Iterator, Sequence, Sized
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

PROMPT_MASK = -100
"""Value of `masks` at positions that are not trained."""

PLAIN_TRAINED_MASK = 1
"""Another value of `masks` at trained positions, besides the token itself: atroposlib's own tests use it."""

PROMPT_LOGPROB = 1.0
"""Value of `inference_logprobs` at positions that were not sampled."""

MAX_CANDIDATES = 128
"""Most tokens that a teacher may name at a position: arrays of [T, K] are made of them."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class ScoredGroup(BaseModel):
    """Scored sequences that answer one prompt and are compared with each other.

    Lists that are given have the shape of `tokens`; optional lists without a single entry count as not given, because
    BaseEnv fills them in that way. Fields that do not affect training (`messages`, `images`, ...) are kept as sent.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    tokens: list[list[TokenId]] = Field(min_length=1, description="[S][T]")
    masks: list[list[int]] = Field(description="[S][T]: PROMPT_MASK or the token")
    scores: list[float] = Field(description="[S], equal within a rollout")
    advantages: list[list[float]] | None = Field(default=None, description="[S][T], instead of scores")
    ref_logprobs: list[list[float]] | None = Field(default=None, description="[S][T]")
    messages: Any = None
    generation_params: dict[str, object] | None = None
    inference_logprobs: list[list[float]] | None = Field(default=None, description="[S][T]: PROMPT_LOGPROB in prompts")
    overrides: list[dict[str, object]] | None = Field(default=None, description="[S]")
    group_overrides: dict[str, Any] | None = None
    images: object = None
    env_id: int | None = Field(default=None, ge=0, lt=2**31)
    distill_token_ids: list[list[list[TokenId]]] | None = Field(default=None, description="[S][T][0 to K]")
    distill_logprobs: list[list[list[float]]] | None = Field(default=None, description="[S][T][0 to K]")

    @property
    def size(self) -> int:
        """Number of sequences, S."""
        return len(self.tokens)

    @cached_property
    def rollout_of_S(self) -> tuple[int, ...]:
        """Which rollout each sequence belongs to, numbered from 0 in the order of their first sequences."""
        given = (self.group_overrides or {}).get("rollouts")
        if given is None:
            return tuple(range(self.size))
        number = {rollout: index for index, rollout in enumerate(dict.fromkeys(given))}
        return tuple(number[rollout] for rollout in given)

    @property
    def rollout_count(self) -> int:
        """What batches, group sizes and counters count."""
        return max(self.rollout_of_S) + 1

    @property
    def largest_token(self) -> int:
        named = (max(held) for row in self.distill_token_ids or () for held in row if held)
        return max(*map(max, self.tokens), max(named, default=0))

    def outside_vocabulary(self, vocabulary: int) -> str | None:
        """A sentence about the first token id outside the model's `vocabulary` ids, or None."""
        for index, row in enumerate(self.tokens):
            if max(row) >= vocabulary:
                position = next(position for position, token in enumerate(row) if token >= vocabulary)
                return f"tokens[{index}][{position}] is {row[position]}; the model knows the ids 0 to {vocabulary - 1}"
        for index, candidates in enumerate(self.distill_token_ids or ()):
            for position, held in enumerate(candidates):
                if held and max(held) >= vocabulary:
                    return (
                        f"distill_token_ids[{index}][{position}] names {max(held)}; the model knows the ids 0 to "
                        f"{vocabulary - 1}: a teacher needs the policy's tokenizer"
                    )
        return None

    @field_validator("advantages", "inference_logprobs", "overrides", "distill_token_ids", "distill_logprobs")
    @classmethod
    def _none_when_empty(cls, rows: list[Sized] | None) -> list[Sized] | None:
        """None for `[]`, and for `[{}, {}]` (overrides) and `[[], []]` (the others): they are empty too."""
        return rows if rows and any(rows) else None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        _check_rows("masks", self.masks, self.tokens)
        _check_length("scores", self.scores, self.tokens)
        for index, (tokens, masks) in enumerate(zip(self.tokens, self.masks, strict=True)):
            _check_masks(index, tokens, masks)
        for name in ("advantages", "inference_logprobs", "distill_token_ids", "distill_logprobs"):
            if (rows := getattr(self, name)) is not None:
                _check_rows(name, rows, self.tokens)
        if self.overrides is not None:
            _check_length("overrides", self.overrides, self.tokens)
        self._check_distillation()
        self._check_rollouts()
        return self

    def _check_distillation(self) -> None:
        given = {"distill_token_ids": self.distill_token_ids, "distill_logprobs": self.distill_logprobs}
        for name, rows in given.items():
            if rows is None and any(other is not None for other in given.values()):
                raise _wrong(name, f"{name} is missing; distill_token_ids and distill_logprobs come together")
        for place, ids, logprobs in _candidates(self.distill_token_ids or (), self.distill_logprobs or ()):
            if ids != logprobs:
                raise _wrong("distill_logprobs", f"distill_logprobs{place} has {logprobs} candidates (K), not {ids}")
            if ids > MAX_CANDIDATES:
                raise _wrong(
                    "distill_token_ids", f"distill_token_ids{place} has {ids} candidates (K); {MAX_CANDIDATES} at most"
                )

    def _check_rollouts(self) -> None:
        rollouts = (self.group_overrides or {}).get("rollouts")
        if rollouts is None:
            return
        name = "group_overrides.rollouts"
        if not isinstance(rollouts, list) or any(type(rollout) is not int for rollout in rollouts):
            raise _wrong("group_overrides", f"{name} must be a list of integers, one for each sequence of tokens")
        _check_length(name, rollouts, self.tokens)
        score_of: dict[int, float] = {}
        for index, (rollout, score) in enumerate(zip(rollouts, self.scores, strict=True)):
            if score_of.setdefault(rollout, score) != score:
                raise _wrong(
                    "scores",
                    f"scores[{index}] is {score}, another sequence of rollout {rollout} has {score_of[rollout]}; "
                    "the sequences of one rollout share its score",
                )


def _wrong(field: str, sentence: str) -> PydanticCustomError:
    """The error's type is the field, so that refusals can be counted by field."""
    return PydanticCustomError(field, "{sentence}", {"sentence": sentence})


def _check_length(name: str, rows: Sized, tokens: Sized) -> None:
    if len(rows) != len(tokens):
        raise _wrong(name.partition(".")[0], f"{name} has {len(rows)} entries for {len(tokens)} sequences of tokens")


def _check_rows(name: str, rows: Sequence[Sized], tokens: Sequence[Sized]) -> None:
    _check_length(name, rows, tokens)
    for index, (row, of_tokens) in enumerate(zip(rows, tokens, strict=True)):
        if not len(of_tokens):
            raise _wrong("tokens", f"tokens[{index}] is empty; a sequence has at least one token")
        if len(row) != len(of_tokens):
            raise _wrong(name, f"{name}[{index}] has {len(row)} positions, tokens[{index}] has {len(of_tokens)}")


def _check_masks(index: int, tokens: list[int], masks: list[int]) -> None:
    prompt = masks.count(PROMPT_MASK)
    if masks[prompt:] == tokens[prompt:]:  # fast path, nearly always taken: a prompt, then its answer
        return
    for position, (token, mask) in enumerate(zip(tokens, masks, strict=True)):
        if mask != token and mask not in (PROMPT_MASK, PLAIN_TRAINED_MASK):
            raise _wrong(
                "masks",
                f"masks[{index}][{position}] is {mask}; allowed are {PROMPT_MASK} (not trained) and the token, {token}",
            )


def _candidates(
    ids_S: Sequence[Sequence[Sized]], logprobs_S: Sequence[Sequence[Sized]]
) -> Iterator[tuple[str, int, int]]:
    """Each position, as `[i][j]`, and how many token ids and logprobs it holds."""
    for index, rows in enumerate(zip(ids_S, logprobs_S, strict=True)):
        for position, (ids, logprobs) in enumerate(zip(*rows, strict=True)):
            yield f"[{index}][{position}]", len(ids), len(logprobs)
