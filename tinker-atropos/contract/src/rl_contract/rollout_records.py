"""The records of rollout files, typed: docs/reference/rollout-files.md says what they mean. Pure.

Unknown records and fields are skipped. A line that is wrong in any part counts as bad, and costs itself only.
"""

import json
from typing import Annotated, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

Number = float | None
"""NaN is written as null."""

MAIN_SET: Final = "main"
MOST_SETS: Final = 8
"""That are shown of a group."""

Count = Annotated[int, Field(ge=0)]
PolicyRun = tuple[Count, Count, Count]
FateRun = tuple[Count, Count, str]


class _Record(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)


class StepRecord(_Record):
    record: Literal["step"] = "step"
    step: Count
    format: int = 1
    run: str = ""
    namespace: str = ""
    uid: str = ""
    attempt: Count = 0
    model: str | None = None
    time: Number = None
    metrics: dict[str, Number] = Field(default_factory=dict)
    tokens: dict[str, Count] = Field(default_factory=dict)


class EvaluationRecord(_Record):
    record: Literal["evaluation"] = "evaluation"
    step: Count
    time: Number = None
    metrics: dict[str, Number] = Field(default_factory=dict)


class SampledSequence(_Record):
    """All lists are as long as `tokens`."""

    tokens: list[int]
    pieces: list[str]
    logprobs: list[Number] | None = None
    trained_logprobs: list[Number] | None = None
    advantages: list[Number] | None = None
    policy_steps: list[PolicyRun] = Field(default_factory=list)
    fates: list[FateRun] = Field(default_factory=list)

    @model_validator(mode="after")
    def _of_equal_length(self) -> "SampledSequence":
        for name in ("pieces", "logprobs", "trained_logprobs", "advantages"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{name} has {len(values)} values for {len(self.tokens)} tokens")
        return self


class SharedPrompt(_Record):
    tokens: list[int] = Field(default_factory=list)
    pieces: list[str] = Field(default_factory=list)


class Rollout(_Record):
    reward: Number = None
    components: dict[str, JsonValue] | None = None
    advantage: Number = None
    messages: list[JsonValue] | None = None
    sequences: list[SampledSequence] = Field(default_factory=list)


class GroupRecord(_Record):
    record: Literal["group"] = "group"
    group: Count = 0
    fate: str
    reason: str | None = None
    why: str | None = None
    step: int | None = None
    sets: list[str] = Field(default_factory=list)
    greedy: bool = False
    item: JsonValue = None
    environment: int | None = None
    sampling: dict[str, JsonValue] | None = None
    prompt: SharedPrompt = Field(default_factory=SharedPrompt)
    rollouts: list[Rollout] = Field(default_factory=list)

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
    what: str = "rollout"
    reason: str = ""
    why: str = ""
    item: JsonValue = None
    count: Count = 1
    tokens: Count | None = None
    environment: int | None = None
    time: Number = None


class UnknownRecord(_Record):
    """Of a later format, perhaps."""

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
