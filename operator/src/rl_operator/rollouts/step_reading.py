"""One step, read in one pass from the files that its attempts left. Pure, apart from the source that it reads from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rl_contract.rollout_records import (
    BadLineError,
    EvaluationRecord,
    GroupRecord,
    KnownRecord,
    LostRecord,
    Record,
    StepRecord,
    UnknownRecord,
    read_record,
)
from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.file_lines import LONGEST_LINE, FileFaults, lines_of
from rl_operator.rollouts.rollout_figures import finite, tokens_by_fate
from rl_operator.rollouts.rollout_source import AttemptFile, RolloutSource, StepFiles
from rl_operator.rollouts.token_ledger import FATE_WORDS, UNKNOWN, TokenLedger, by_known_fate, is_arrived

MOST_REASONS: Final = 200
"""Different sentences that are counted: an environment may write a new one each time."""

REWARD: Final = "reward/mean"


class Why(NamedTuple):
    """`what`: `group` or `rollout`; of a lost one, or of a group that was dropped."""

    what: str
    reason: str
    why: str

    @property
    def word(self) -> str:
        """What became of it, if a record of losses tells of it: a group may have been whole, and is just not kept."""
        return "only counted" if self.what == "group" else "lost"


class ReasonTotal(NamedTuple):
    """`example`: the most frequent of its sentences, of which there are `sentences`."""

    example: Why
    times: int
    tokens: int
    sentences: int


@dataclass
class Mean:
    """The mean of rewards."""

    total: float = 0.0
    count: int = 0

    def add(self, group: GroupRecord) -> None:
        known = [reward for rollout in group.rollouts if (reward := finite(rollout.reward)) is not None]
        self.total += sum(known)
        self.count += len(known)

    @property
    def value(self) -> float | None:
        return finite(self.total / self.count) if self.count else None


@dataclass
class Reasons:
    """How often each reason was given, and the tokens that it cost."""

    counts: Counter[Why] = field(default_factory=Counter)
    tokens: Counter[Why] = field(default_factory=Counter)

    def add(self, why: Why, count: int, tokens: int) -> None:
        kept = why if why in self.counts or len(self.counts) < MOST_REASONS else Why(why.what, "others", "")
        self.counts[kept] += count
        self.tokens[kept] += tokens

    def totals(self) -> "list[ReasonTotal]":
        """By reason, the most frequent first: sentences may differ in an address or a time."""
        sentences: dict[tuple[str, str], list[Why]] = {}
        for why, _ in self.counts.most_common():
            sentences.setdefault((why.what, why.reason), []).append(why)
        totals = [self._total(each) for each in sentences.values()]
        return sorted(totals, key=lambda each: -each.times)

    def _total(self, sentences: "list[Why]") -> "ReasonTotal":
        count, tokens = (sum(counted[why] for why in sentences) for counted in (self.counts, self.tokens))
        return ReasonTotal(sentences[0], count, tokens, len(sentences))


@dataclass
class StepSummary:
    """What is known of a step. Complete once its groups have been read."""

    step: int
    record: StepRecord | None = None
    attempt: int | None = None
    """The one that trained it, or else the newest that has anything of it."""

    older: list[int] = field(default_factory=list)
    """Attempts that trained it, too: their weights were lost."""

    groups: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """Tokens of the groups that arrived, by fate."""

    evaluation: EvaluationRecord | None = None
    """Its last one."""

    dropped: Reasons = field(default_factory=Reasons)
    lost: Reasons = field(default_factory=Reasons)
    rewards: Mean = field(default_factory=Mean)
    """Of the rollouts of groups that arrived and were not dropped."""

    evaluated: Mean = field(default_factory=Mean)
    """Reward of the main held-out set, greedy answers left out."""

    faults: dict[str, FileFaults] = field(default_factory=dict)
    """By the file's name."""

    gone: list[str] = field(default_factory=list)
    """Files that were removed to make room while we read."""

    unknown: int = 0
    """Records of another kind."""

    @property
    def ledger(self) -> TokenLedger:
        return TokenLedger(by_known_fate(self.record.tokens) if self.record else None, by_known_fate(self.found))

    @property
    def reward(self) -> float | None:
        """The mean over the rollouts of groups that arrived."""
        told = finite(self.record.metrics.get(REWARD)) if self.record else None
        return self.rewards.value if told is None else told

    def notes(self) -> Iterator[str]:
        """What a reader must know about the files."""
        for attempt in sorted(self.older):
            yield f"attempt {attempt} trained step {self.step}, too; its weights were lost, and it is not shown"
        for name, faults in self.faults.items():
            yield from (f"{name}: {sentence}" for sentence in faults.sentences())
        for name in self.gone:
            yield f"{name} was removed meanwhile, to make room"
        if self.unknown:
            were = (
                "record of a kind that this version does not know was"
                if self.unknown == 1
                else ("records of kinds that this version does not know were")
            )
            yield f"{self.unknown:,} {were} left out"


class StepReading:
    """`records` is read once: the summary grows meanwhile. `longest`: bytes of a line."""

    def __init__(self, source: RolloutSource, files: StepFiles, *, longest: int = LONGEST_LINE) -> None:
        self._source = source
        self._longest = longest
        self._files = files
        self.summary = StepSummary(files.step)

    def records(self) -> Iterator[tuple[bytes, KnownRecord]]:
        """The step's own record, its groups and what was lost, each with its line. Of what attempts trained, that of
        the newest one only; evaluations, losses and what environments dropped, of all.
        """
        for file in self._files.files:
            for line, record in self._file_records(file):
                if isinstance(record, UnknownRecord):
                    self.summary.unknown += 1
                elif self._counts(file, record):
                    yield line, record

    def _file_records(self, file: AttemptFile) -> Iterator[tuple[bytes, Record]]:
        faults = FileFaults(longest_line=self._longest)
        try:
            content = self._source.content(file.file.name)
        except GoneError:
            self.summary.gone.append(file.file.name)
            return
        self.summary.faults[file.file.name] = faults
        for line in lines_of(content, faults):
            try:
                yield line, read_record(line)
            except BadLineError as error:
                faults.bad_lines += 1
                faults.first = faults.first or str(error)

    def _counts(self, file: AttemptFile, record: KnownRecord) -> bool:
        """Count a record, unless a newer attempt has taken its place."""
        summary = self.summary
        match record:
            case StepRecord():
                return self._counts_step(file, record)
            case EvaluationRecord():
                summary.evaluation = record
            case GroupRecord():
                if (
                    is_arrived(record.fate, record.reason)
                    and summary.record is not None
                    and summary.attempt != file.attempt
                ):
                    return False
                self._count_group(file, record)
            case LostRecord():
                summary.lost.add(Why(record.what, record.reason, record.why), record.count, record.tokens or 0)
        return True

    def _counts_step(self, file: AttemptFile, record: StepRecord) -> bool:
        if self.summary.record is not None:
            self.summary.older.append(file.attempt)
            return False
        self.summary.record, self.summary.attempt = record, file.attempt
        return True

    def _count_group(self, file: AttemptFile, record: GroupRecord) -> None:
        summary = self.summary
        if summary.attempt is None:
            summary.attempt = file.attempt
        summary.groups[record.fate if record.fate in FATE_WORDS else UNKNOWN] += 1
        tokens = tokens_by_fate(record)
        if record.fate == "dropped":
            summary.dropped.add(Why("group", record.reason or "", record.why or ""), 1, tokens["dropped"])
        if is_arrived(record.fate, record.reason):
            summary.found.update(tokens)
        if record.fate in ("trained", "no_advantage"):
            summary.rewards.add(record)
        if record.fate == "evaluated" and record.is_of_main_set:
            summary.evaluated.add(record)
