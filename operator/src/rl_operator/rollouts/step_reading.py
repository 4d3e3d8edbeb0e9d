"""One step, read in one pass from the files that its attempts left. Pure, apart from the source that it reads from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rl_contract.rollout_records import (
    EvaluationRecord,
    GroupRecord,
    KnownRecord,
    LostRecord,
    StepRecord,
    UnknownRecord,
    read_record,
)
from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.file_lines import LONGEST_LINE, FileFaults, records_of
from rl_operator.rollouts.rollout_figures import finite, tokens_by_fate
from rl_operator.rollouts.rollout_source import RolloutSource, StepFiles
from rl_operator.rollouts.token_ledger import TokenLedger, by_known_fate, is_arrived, known_fate

MOST_REASONS: Final = 200
"""Different sentences that are counted: an environment may write a new one each time."""

BATCH_REWARD: Final = "reward/mean"


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
        totals = [
            ReasonTotal(
                each[0], sum(self.counts[why] for why in each), sum(self.tokens[why] for why in each), len(each)
            )
            for each in sentences.values()
        ]
        return sorted(totals, key=lambda each: -each.times)


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
    def batch_reward(self) -> float | None:
        """The mean over the rollouts of groups that arrived."""
        told = finite(self.record.metrics.get(BATCH_REWARD)) if self.record else None
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
            kinds, were = ("record of a kind", "was") if self.unknown == 1 else ("records of kinds", "were")
            yield f"{self.unknown:,} {kinds} that this version does not know {were} left out"


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
        for attempt, file in self._files.files.items():
            faults = FileFaults(longest_line=self._longest)
            try:
                lines = records_of(self._source.content(file.name), faults, read_record)
            except GoneError:
                self.summary.gone.append(file.name)
                continue
            self.summary.faults[file.name] = faults
            for line, record in lines:
                if isinstance(record, UnknownRecord):
                    self.summary.unknown += 1
                elif self._counts(attempt, record):
                    yield line, record

    def _counts(self, attempt: int, record: KnownRecord) -> bool:
        """Count a record, unless a newer attempt has taken its place."""
        summary = self.summary
        match record:
            case StepRecord() if summary.record is not None:
                summary.older.append(attempt)
                return False
            case StepRecord():
                summary.record, summary.attempt = record, attempt
            case EvaluationRecord():
                summary.evaluation = record
            case GroupRecord():
                was_trained_again = summary.record is not None and summary.attempt != attempt
                if was_trained_again and is_arrived(record.fate, record.reason):
                    return False
                self._count_group(attempt, record)
            case LostRecord():
                summary.lost.add(Why(record.what, record.reason, record.why), record.count, record.tokens or 0)
        return True

    def _count_group(self, attempt: int, record: GroupRecord) -> None:
        summary = self.summary
        if summary.attempt is None:
            summary.attempt = attempt
        summary.groups[known_fate(record.fate)] += 1
        tokens = tokens_by_fate(record)
        if record.fate == "dropped":
            summary.dropped.add(Why("group", record.reason or "", record.why or ""), 1, tokens["dropped"])
        if is_arrived(record.fate, record.reason):
            summary.found.update(tokens)
        if record.fate in ("trained", "no_advantage"):
            summary.rewards.add(record)
        if record.fate == "evaluated" and record.is_of_main_set:
            summary.evaluated.add(record)
