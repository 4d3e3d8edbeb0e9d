"""The records of rollout files, typed: what a trainer writes, and what rlctl, the page and agents read.

Descriptions are the tables of docs/reference/rollout-files.md. Readers skip unknown records and fields; a line that is
wrong in any part counts as bad, and costs itself only. Writers fill records with arrays of their own: see `line_of`.
"""

import json
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

Number = float | None
"""NaN is written as null."""

FORMAT: Final = 1
MAIN_SET: Final = "main"
"""The held-out set of `held_out_items`, whose figures have no set's name."""

LONGEST_ITEM: Final = 1_000
"""Characters of an item that are kept."""

MOST_SETS: Final = 8
"""That are shown of a group."""

Count = Annotated[int, Field(ge=0)]
PolicyRun = tuple[Count, Count, Count]
FateRun = tuple[Count, Count, str]


class _Record(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)


class StepRecord(_Record):
    record: Literal["step"] = "step"
    format: int = Field(default=FORMAT, description=f"{FORMAT}")
    run: str = Field(default="", description="whose it is: the run's name")
    namespace: str = Field(default="", description="the run's namespace")
    uid: str = Field(default="", description="the run's UID")
    attempt: Count = Field(default=0, description="the attempt that trained it, from 1")
    model: str | None = Field(default=None, description="the base model")
    step: Count = Field(description="its number")
    time: Number = Field(default=None, description="when it was trained, in seconds since the epoch")
    metrics: dict[str, Number] = Field(default_factory=dict, description="all metrics of the step, by name")
    tokens: dict[str, Count] = Field(
        default_factory=dict,
        description="what became of the tokens that arrived for this step: their number by fate, as below; `prompt` "
        "leaves out prompts that a group shares",
    )


class EvaluationRecord(_Record):
    record: Literal["evaluation"] = "evaluation"
    step: Count = Field(description="the weights after this step")
    time: Number = Field(default=None, description="when it was reported, in seconds since the epoch")
    metrics: dict[str, Number] = Field(
        default_factory=dict,
        description="as the environment reports them: `eval/percent_correct` with its `_low` and `_high`, `eval/n`, "
        "and [more](../explanation/evaluations.md#figures)",
    )


class SequenceRecord(_Record):
    """All lists are as long as `tokens`."""

    tokens: list[int] = Field(description="ids of the tokens after the group's `prompt`")
    pieces: list[str] = Field(
        description="their text. A character of several tokens is with the first of them, and the others are empty"
    )
    logprobs: list[Number] | None = Field(
        default=None,
        description="at sampling, natural logarithm, 5 decimals; `null` where not known or not sampled",
    )
    trained_logprobs: list[Number] | None = Field(
        default=None,
        description="of the same tokens by the trainer's forward pass, before the step's update; missing if nothing "
        "of it was trained",
    )
    advantages: list[Number] | None = Field(
        default=None, description="only if they differ from the rollout's `advantage` in some trained token"
    )
    policy_steps: list[PolicyRun] = Field(
        default_factory=list,
        description="runs of equal values: `[[start, end, step], …]`, the policy that sampled the tokens from `start` "
        "to before `end`; unknown ones are left out",
    )
    fates: list[FateRun] = Field(
        default_factory=list, description="runs that cover the whole list: `[[start, end, fate], …]`"
    )

    @model_validator(mode="after")
    def _of_equal_length(self) -> "SequenceRecord":
        for name in ("pieces", "logprobs", "trained_logprobs", "advantages"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{name} has {len(values)} values for {len(self.tokens)} tokens")
        return self


class SharedPrompt(_Record):
    tokens: list[int] = Field(default_factory=list)
    pieces: list[str] = Field(default_factory=list)


class RolloutRecord(_Record):
    reward: Number = Field(
        default=None, description="what the environment gave; `null` where that is not known, see below"
    )
    components: dict[str, JsonValue] | None = Field(
        default=None, description="the parts of the reward by name, if the environment says them"
    )
    worth: Number = Field(
        default=None,
        description="of an `evaluated` group: what the held-out figure counts it as, 1 for right and 0 for wrong; "
        "missing where only the environment knows",
    )
    advantage: Number = Field(
        default=None,
        description="of the rollout within its group, or the mean of those that its environment gave its tokens; "
        "`null` where none was computed",
    )
    messages: list[JsonValue] | None = Field(default=None, description="the conversation, if the environment keeps it")
    sequences: list[SequenceRecord] = Field(
        default_factory=list, description="one; more if a later prompt did not extend an earlier one"
    )


class GroupRecord(_Record):
    record: Literal["group"] = "group"
    group: Count = Field(default=0, description="its number within its file and fate, from 0")
    fate: str = Field(
        description="`trained`; `no_advantage`: all rollouts earned the same; `dropped`: see `reason` and `why`; "
        "`evaluated`: of the held-out set, never trained"
    )
    reason: str | None = Field(
        default=None,
        description="of a dropped group: `stale`, `no_logprobs`, `untrainable_sampling`, `too_long` or "
        "`no_gradient`. Any other reason is the environment's: the group never arrived, and its tokens are not among "
        "the step's `tokens`",
    )
    why: str | None = Field(default=None, description="of a dropped group: a sentence")
    step: int | None = Field(default=None, description="of an `evaluated` group: the weights after this step")
    sets: list[str] = Field(
        default_factory=list,
        description="of an `evaluated` group: the held-out sets that the item is in; `main` is that of the held-out "
        "figure. Missing where that is not known",
    )
    greedy: bool = Field(
        default=False,
        description="true of an answer at temperature 0 to an item whose other answers are in a group of their own; "
        "else missing",
    )
    item: JsonValue = Field(
        default=None, description="what the environment calls the item, as JSON or text; may be missing"
    )
    environment: int | None = Field(
        default=None, description="which environment process sent it, from 0; may be missing"
    )
    sampling: dict[str, JsonValue] | None = Field(
        default=None,
        description="temperature, top_p and top_k under which it was sampled, if all of it was sampled alike and the "
        "trainer knows",
    )
    prompt: SharedPrompt = Field(
        default_factory=SharedPrompt,
        description="`tokens` and `pieces` that all its sequences begin with, and that nobody sampled",
    )
    rollouts: list[RolloutRecord] = Field(default_factory=list, description="see below")

    @property
    def is_of_main_set(self) -> bool:
        """Whether the held-out figure is of it."""
        return not self.greedy and (not self.sets or MAIN_SET in self.sets)

    @property
    def evaluated_as(self) -> list[str]:
        """What is particular about a held-out group: its sets by name, if it is not in the main one only."""
        sets = [] if self.sets in ([], [MAIN_SET]) else [f"set {name}" for name in self.sets[:MOST_SETS]]
        return [*sets, *(["greedy"] if self.greedy else [])]


class LostRecord(_Record):
    record: Literal["lost"] = "lost"
    what: str = Field(default="rollout", description="`rollout` or `group`")
    reason: str = Field(default="", description="`raised`, `timeout`, `transport`, `overdue`, `refused`, `not_kept`, …")
    why: str = Field(default="", description="a sentence")
    item: JsonValue = Field(default=None, description="as above; may be missing")
    count: Count = Field(default=1, description="how many in a row had this reason and this sentence")
    tokens: Count | None = Field(default=None, description="sampled for them, and lost; may be missing")
    environment: int | None = Field(default=None, description="as above")
    time: Number = Field(default=None, description="when it was reported")


class UnknownRecord(_Record):
    """A record of a later format, perhaps."""

    record: str


class LineHead(_Record):
    """What counts need of any record. The rest of the line is not made into objects."""

    record: str
    fate: str = ""
    reason: str | None = None
    count: Count = 1
    metrics: dict[str, Number] = Field(default_factory=dict)


class MetricsLine(_Record):
    """A line of a metrics file: a `step`, an `evaluation`, or of a later format."""

    record: str
    step: Count = 0
    time: Number = None
    metrics: dict[str, Number] = Field(default_factory=dict)


Line = dict[str, Any]
"""A record as a writer has it, or a part of one: any values that its JSON library writes as the field's type."""


def line_of(record: type[_Record], **fields: object) -> Line:
    """TypeError for fields that the record does not have. What is not known is left out by whoever calls."""
    known = record.model_fields
    if unknown := fields.keys() - known.keys():
        raise TypeError(f"{record.__name__} has no {', '.join(sorted(unknown))}")
    return {"record": known["record"].default, **fields} if "record" in known else fields


KnownRecord = StepRecord | EvaluationRecord | GroupRecord | LostRecord
Record = KnownRecord | UnknownRecord

_HEAD: Final[TypeAdapter[LineHead]] = TypeAdapter(LineHead)
_METRICS: Final[TypeAdapter[MetricsLine]] = TypeAdapter(MetricsLine)
_KNOWN: Final[TypeAdapter[KnownRecord]] = TypeAdapter(Annotated[KnownRecord, Field(discriminator="record")])

LONGEST_FAULT: Final = 200
"""Characters of what is wrong with a line."""

Read = TypeVar("Read", bound=BaseModel)


class BadLineError(ValueError):
    """The message says in a few words what is wrong."""


def read_record(line: bytes) -> Record:
    """Raises BadLineError."""
    try:
        return _read(_KNOWN, line)
    except _UnknownTagError:
        return UnknownRecord(record=_read(_HEAD, line).record)


def read_head(line: bytes) -> LineHead:
    """Raises BadLineError."""
    return _read(_HEAD, line)


def read_metrics_line(line: bytes) -> MetricsLine:
    """Raises BadLineError."""
    return _read(_METRICS, line)


class _UnknownTagError(Exception):
    pass


def _read(adapter: TypeAdapter[Read], line: bytes) -> Read:
    try:
        try:
            return adapter.validate_json(line)
        except ValidationError as error:
            if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
                raise
            return adapter.validate_json(_repaired(line))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        if fault["type"] == "union_tag_invalid":
            raise _UnknownTagError from None
        where = ".".join(map(str, fault["loc"]))
        raise BadLineError((f"{where}: {fault['msg']}" if where else str(fault["msg"]))[:LONGEST_FAULT]) from None


def _repaired(line: bytes) -> bytes:
    """Texts that are not Unicode become so: a wrong byte or half of a character costs itself only."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return line  # it is not JSON at all
