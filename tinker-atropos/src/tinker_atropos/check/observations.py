"""What a check has seen so far: facts, no judgments. Written stage by stage in the main thread; the thread that ends a
check at its limit reads what there is by then.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from tinker_atropos.environments.runner.reporting.counters import Counters

Stage = Literal["import", "setup", "items", "rollouts", "grader", "held_out", "close", "done"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

ScriptedKind = Literal["gold", "wrong", "empty", "random"]
"""What a scripted answer is: the environment's gold or wrong answer, only the end of the turn, or random tokens."""

ReportedLogprobs = Literal["as sampled", "different", "not given"]


@dataclass(frozen=True, slots=True)
class SequenceSeen:
    """Counts of one sequence's tokens. `trained` ones are marked by its masks; `sampled` ones are in the ledger (None:
    there is none, as with a provider's model), and `trained_sampled` are both. `left_out` were sampled and are not
    trained, although others of the same answer are. `kind` is None if it is not one kind.
    """

    tokens: int
    trained: int
    sampled: int | None = None
    trained_sampled: int = 0
    left_out: int = 0
    logprobs: ReportedLogprobs = "not given"
    shaped: frozenset[str] = frozenset()
    kind: ScriptedKind | None = None


@dataclass(frozen=True, slots=True)
class AnswerSeen:
    """One rollout for people to read: what was said, and what it earned. `tokens` counts all of them."""

    text: str
    reward: float
    tokens: int
    kind: ScriptedKind | None = None


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One group that the environment sent. `rewards` has one entry for each rollout, NaN for what is not a number.

    `refused` is why the trajectory API would not take it, `unusable` why the trainer would not; each of them None if it
    would. `rollouts` says whose each sequence is. `teaches`: its rewards differ, or it brings advantages of its own.
    """

    rewards: tuple[float, ...]
    refused: str | None = None
    unusable: str | None = None
    sequences: tuple[SequenceSeen, ...] = ()
    rollouts: tuple[int, ...] = ()
    teaches: bool = False
    trained_rollouts: int = 0
    prompt: str = ""
    answers: tuple[AnswerSeen, ...] = ()

    def answers_of(self, kind: ScriptedKind) -> list[AnswerSeen]:
        """Answers of the rollouts in which every answer was of this kind, one for each."""
        kinds: dict[int, set[ScriptedKind | None]] = {}
        for rollout, sequence in zip(self.rollouts, self.sequences, strict=True):
            kinds.setdefault(rollout, set()).add(sequence.kind)
        first = dict(reversed(list(zip(self.rollouts, self.answers, strict=True))))
        return [first[rollout] for rollout, of_it in kinds.items() if of_it == {kind}]


@dataclass(frozen=True, slots=True)
class GradedKind:
    """What the grader gave for one kind of answer to one item. `certain`: it was asked for just that answer; otherwise
    it scored a rollout.
    """

    kind: Literal["empty", "wrong", "gold"]
    answer: str
    reward: float
    certain: bool


@dataclass(frozen=True, slots=True)
class HeldOutOverlap:
    """Numbers of items of one set; `overlap` of them ask what an item asks that is trained. `compared` were looked at.
    `left_out`: items that would be trained, did they not ask what one of any set asks.
    """

    items: int
    training_items: int
    overlap: int = 0
    compared: int = 0
    left_out: int = 0


class BrokenOffError(Exception):
    """The check cannot go on; why is in its observations."""


@dataclass
class Observations:
    """The observations of one check. `model` None: scripted answers. `broken` has a sentence for each stage that
    failed. `knows_answers`: the environment is of our base classes, and can say what is right; `knows_gold`: it did.
    `held_out` are its sets by name, the main one first. `item_warnings`: what a run's status would say of its items.
    """

    environment: str
    model: str | None = None
    seed: int = 0
    groups_asked: int = 3
    stage: Stage = "import"
    broken: dict[Stage, str] = field(default_factory=dict)
    seconds: dict[Stage, float] = field(default_factory=dict)
    class_name: str | None = None
    tokenizer: str | None = None
    group_size: int = 0
    max_token_length: int = 0
    longest_trained: int = 0
    item_seconds: list[float] = field(default_factory=list)
    item_warnings: list[str] = field(default_factory=list)
    draws_items: bool = False
    groups: list[GroupSeen] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    requests: Counter[str] = field(default_factory=Counter)
    requests_refused: Counter[str] = field(default_factory=Counter)
    knows_answers: bool = False
    knows_gold: bool = False
    graded: list[GradedKind] = field(default_factory=list)
    is_correct: Callable[[float], bool] = lambda reward: reward >= 1.0
    held_out: dict[str, HeldOutOverlap] | None = None

    @contextmanager
    def during(
        self,
        stage: Stage,
        explain: Callable[[BaseException], str],
        *,
        fatal: bool = False,
        through: tuple[type[Exception], ...] = (),
    ) -> Iterator[None]:
        """Time a stage. What the environment raises in it is recorded; it ends the check if it is `fatal`. Errors of
        the classes `through` are the caller's.
        """
        self.stage, begun = stage, time.monotonic()
        try:
            yield
        except through:
            raise
        except (Exception, SystemExit) as error:
            self.broken.setdefault(stage, explain(error))
            if fatal:
                raise BrokenOffError from error
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - begun

    def break_off(self, sentence: str) -> None:
        """The check ends in the middle of its stage."""
        if self.stage != "done":
            self.broken.setdefault(self.stage, sentence)

    def passed(self, stage: Stage) -> bool:
        """Whether a stage was completed."""
        return stage not in self.broken and STAGES.index(self.stage) > STAGES.index(stage)

    @property
    def accepted(self) -> Sequence[GroupSeen]:
        """Groups that the trajectory API would take."""
        return [group for group in self.groups if group.refused is None]

    @property
    def sequences(self) -> Sequence[SequenceSeen]:
        return [sequence for group in self.accepted for sequence in group.sequences]
