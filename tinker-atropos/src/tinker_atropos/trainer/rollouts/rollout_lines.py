"""The lines of rollout files, as docs/reference/rollout-files.md describes them: from a trained step, an evaluation, or
a report of an environment to records. Pure.

rl_contract.rollout_records says what the fields mean.
Axes: _S sequences of a group, _T tokens of one sequence after what all sequences of its group begin with.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from rl_contract.rollout_fates import TOKEN_FATES, GroupFate, TokenFate
from rl_contract.rollout_records import (
    FORMAT,
    EvaluationRecord,
    GroupRecord,
    Line,
    LostRecord,
    RolloutRecord,
    SequenceRecord,
    SharedPrompt,
    StepRecord,
    line_of,
)
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats, Ints
from tinker_atropos.trainer.data.advantages import group_advantages, masked_rollouts
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, TokenSequence
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport, UntrainedGroup
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_group
from tinker_atropos.trainer.update.loss_clips import clipped_tokens

_FATES: Final = tuple(TOKEN_FATES)
_CODE: Final[Mapping[TokenFate, int]] = {fate: code for code, fate in enumerate(_FATES)}

DECIMALS: Final = 5

Codes = npt.NDArray[np.int8]
Pieces = Callable[[Sequence[int]], list[str]]

TOLD: Final = ("components", "messages")
"""Fields of a rollout that hold whatever the environment sent."""

OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE

Lines = Iterator[Line]
"""They are made one by one, in the thread that writes them: as objects, a large step takes ten times its bytes."""


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """`logprobs` are those of forward_backward, for each datum of the batch; empty if nothing was trained. The
    `first_datums` are of its first optimizer step; None: all.
    """

    collected: Collected
    batch: TrainingBatch
    logprobs: Sequence[Floats] = ()
    first_datums: int | None = None


@dataclass(frozen=True, slots=True)
class TrainedSequence:
    """What the step did with one sequence. Arrays are as long as its tokens; where nothing was trained, `trained_T` is
    False and `logprobs_T` (by the trainer's forward pass) means nothing. `taught_T`: trained by a teacher's top-k,
    whatever became of the advantage.
    """

    trained_T: npt.NDArray[np.bool_]
    advantages_T: Floats
    logprobs_T: Floats
    clipped_T: npt.NDArray[np.bool_]
    taught_T: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group and what became of it. `number` counts groups of its fate; `why` is the sentence of a dropped one;
    `advantages_R` are None where none were computed; `trained_S` has None for sequences that were not trained, and
    `masked_S` says which of them were not because they were cut off by length. `sets`
    are the held-out sets of an evaluated one, `worth_R` is what its figure counts each rollout as (empty: not known),
    and `greedy` says that it was sampled at temperature 0, beside others.
    """

    group: Group
    fate: GroupFate
    number: int
    advantages_R: Floats | None = None
    trained_S: Sequence[TrainedSequence | None] = ()
    reason: str | None = None
    why: str | None = None
    step: int | None = None
    masked_S: npt.NDArray[np.bool_] | None = None
    sets: Sequence[str] = ()
    worth_R: Sequence[float] = ()
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The run whose rollouts they are."""

    run: str
    namespace: str
    uid: str
    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class RolloutLines:
    """Groups of one fate and step are numbered in the order in which their lines are made."""

    run: KeptRun
    config: TrainerSettings
    pieces: Pieces
    _numbers: defaultdict[tuple[int, str], Iterator[int]] = field(default_factory=lambda: defaultdict(itertools.count))

    def of_step(self, step: int, trained: TrainedStep, metrics: Mapping[str, float], at: float) -> Lines:
        found = list(group_facts(trained, self.config))
        yield line_of(
            StepRecord, format=FORMAT, **asdict(self.run), step=step, time=at, metrics=metrics,
            tokens=fate_totals(found),
        )  # fmt: skip
        for facts in found:
            if facts.fate == "dropped":  # the environment's are in the same file
                facts = replace(facts, number=next(self._numbers[step, "dropped"]))  # noqa: PLW2901
            yield group_record(facts, self.pieces)

    def of_evaluation(self, step: int, metrics: Mapping[str, float], at: float) -> Lines:
        yield line_of(EvaluationRecord, step=step, time=at, metrics=metrics)

    def of_report(self, report: RolloutReport, collecting: int, at: float) -> Iterator[tuple[int, Lines]]:
        """The lines of each step that the report is about, while step `collecting` is collected."""
        evaluated: defaultdict[int, list[UntrainedGroup]] = defaultdict(list)
        dropped: list[UntrainedGroup] = []
        for group in report.groups:
            (dropped if group.step is None else evaluated[group.step]).append(group)
        for step, groups in evaluated.items():
            yield step, self._untrained(step, groups, report.environment)
        if dropped or report.lost:
            lines = self._untrained(collecting, dropped, report.environment)
            yield collecting, itertools.chain(lines, _lost(report, at))

    def _untrained(self, step: int, groups: Sequence[UntrainedGroup], environment: int) -> Lines:
        for untrained in groups:
            number = next(self._numbers[step, untrained.fate])
            yield group_record(_facts(untrained, number, environment), self.pieces)


def encoded(record: Line) -> bytes:
    """A line. What an environment says besides is left out if it cannot be written, such as lists in 300 lists."""
    try:
        return orjson.dumps(record, option=OPTIONS)
    except orjson.JSONEncodeError:
        plain = {name: value for name, value in record.items() if name != "item"}
        if rollouts := record.get("rollouts"):
            plain["rollouts"] = [
                {name: value for name, value in rollout.items() if name not in TOLD} for rollout in rollouts
            ]
        return orjson.dumps(plain, option=OPTIONS)


def _facts(untrained: UntrainedGroup, number: int, environment: int) -> GroupFacts:
    told = untrained.group.model_dump()
    group = read_group(told | {"scores": [math.nan if score is None else score for score in told["scores"]]})
    return GroupFacts(
        replace(group, story=replace(group.story, environment=environment)), untrained.fate, number,
        reason=untrained.reason, why=untrained.why, step=untrained.step, sets=untrained.sets, worth_R=untrained.worth,
        greedy=untrained.greedy,
    )  # fmt: skip


def _lost(report: RolloutReport, at: float) -> Lines:
    for lost in report.lost:
        yield line_of(LostRecord, **lost.model_dump(exclude_none=True), environment=report.environment, time=at)


def group_facts(step: TrainedStep, config: TrainerSettings) -> Iterator[GroupFacts]:
    """The facts of the batch's groups, then of those that were dropped."""
    datums_of: dict[int, list[tuple[Datum, Floats]]] = {}
    for datum, logprobs_T in zip(step.batch.datums, step.logprobs, strict=True):
        datums_of.setdefault(datum.group, []).append((datum, logprobs_T))
    trained = left_out = 0
    for index, group in enumerate(step.batch.groups):
        advantages_R = group_advantages(group, config)
        masked_S = masked_rollouts(group, config)[group.rollout_of_S]
        datums = iter(datums_of.get(index, ()))
        if index in datums_of:
            trained_S = [
                trained_sequence(*next(datums), config) if sequence.generated_T[1:].any() and not masked else None
                for sequence, masked in zip(group.sequences_S, masked_S, strict=True)
            ]
            yield GroupFacts(group, "trained", trained, advantages_R, trained_S, masked_S=masked_S)
            trained += 1
        else:
            yield GroupFacts(group, "no_advantage", left_out, advantages_R, masked_S=masked_S)
            left_out += 1
    for number, dropped in enumerate(step.collected.unusable):
        yield GroupFacts(dropped.group, "dropped", number, reason=dropped.reason, why=dropped.why)


def trained_sequence(datum: Datum, logprobs_T: Floats, config: TrainerSettings) -> TrainedSequence:
    """Shifted back: prediction t of a datum is of token t + 1."""
    clipped_T = _nowhere(datum)
    clipped_T[datum.trained_T] = clipped_tokens([datum], [logprobs_T], config)
    return TrainedSequence(
        trained_T=np.concatenate([[False], datum.trained_T]),
        advantages_T=_of_tokens(datum.advantages_T),
        logprobs_T=_of_tokens(logprobs_T),
        clipped_T=np.concatenate([[False], clipped_T]),
        taught_T=np.concatenate([[False], _nowhere(datum) if datum.teacher is None else datum.teacher.spoken_T]),
    )


def _nowhere(datum: Datum) -> Bools:
    return np.zeros(len(datum.trained_T), np.bool_)


def _of_tokens(predictions_T: Floats) -> Floats:
    return np.concatenate([[0.0], predictions_T])


def group_record(facts: GroupFacts, pieces: Pieces) -> Line:
    group, story = facts.group, facts.group.story
    shared = shared_prompt(group.sequences_S)
    sequences_S: list[Line] = []
    for index, (sequence, fates_T) in enumerate(zip(group.sequences_S, _fates(facts, shared), strict=True)):
        trained = facts.trained_S[index] if facts.trained_S else None
        parts = _sampled(sequence, shared, pieces) | _runs(sequence, shared, fates_T)
        if trained is not None:
            parts |= _trained(trained, shared, _advantage(facts, int(group.rollout_of_S[index])))
        sequences_S.append(line_of(SequenceRecord, **parts))
    prompt = group.sequences_S[0].tokens_T[:shared].tolist()
    known = _given(reason=facts.reason, why=facts.why, step=facts.step, item=story.item)
    known |= _given(sets=facts.sets or None, greedy=facts.greedy or None)
    known |= _given(environment=story.environment, sampling=group.shaping and asdict(group.shaping))
    return line_of(
        GroupRecord,
        group=facts.number,
        fate=facts.fate,
        **known,
        prompt=line_of(SharedPrompt, tokens=prompt, pieces=pieces(prompt)),
        rollouts=list(_rollouts(facts, sequences_S)),
    )


def fate_totals(found: Iterable[GroupFacts]) -> dict[str, int]:
    """How many tokens of these groups had which fate, in the order of TOKEN_FATES; those that have none are left out.
    What all sequences of a group begin with is not counted.
    """
    counts = np.zeros(len(TOKEN_FATES), np.int64)
    for facts in found:
        for fates_T in _fates(facts, shared_prompt(facts.group.sequences_S)):
            counts += np.bincount(fates_T, minlength=len(TOKEN_FATES))
    return {fate: count for fate, count in zip(_FATES, counts.tolist(), strict=True) if count}


def _fates(facts: GroupFacts, shared: int) -> Iterator[Codes]:
    """The fates of the tokens of each sequence, after what all of them begin with."""
    for index, sequence in enumerate(facts.group.sequences_S):
        trained = facts.trained_S[index] if facts.trained_S else None
        masked = facts.masked_S is not None and bool(facts.masked_S[index])
        yield token_fates(sequence, facts.fate, trained, masked=masked)[shared:]


def shared_prompt(sequences_S: Sequence[TokenSequence]) -> int:
    """How many tokens all sequences begin with that the environment did not mark as generated."""
    first = sequences_S[0]
    marked_S = [marked_tokens(sequence) for sequence in sequences_S]
    length = min(int(marked_T.argmax()) if marked_T.any() else len(marked_T) for marked_T in marked_S)
    for other in sequences_S[1:]:
        different = first.tokens_T[:length] != other.tokens_T[:length]
        if different.any():
            length = int(different.argmax())
    return length


def marked_tokens(sequence: TokenSequence) -> Bools:
    return sequence.generated_T if sequence.marked_T is None else sequence.marked_T


def token_fates(
    sequence: TokenSequence, fate: GroupFate, trained: TrainedSequence | None, *, masked: bool = False
) -> Codes:
    """The code of each token of the whole sequence."""
    fates_T = np.where(marked_tokens(sequence), _CODE["not_sampled"], _CODE["prompt"]).astype(np.int8)
    sampled_T = sequence.generated_T
    if fate in ("dropped", "evaluated"):
        fates_T[sampled_T] = _CODE["dropped" if fate == "dropped" else "evaluated"]
        return fates_T
    without: TokenFate = "truncated" if masked else "muted" if sequence.muted else "no_advantage"
    fates_T[sampled_T] = _CODE[without]
    if trained is not None:
        fates_T[trained.trained_T & (trained.advantages_T != 0)] = _CODE["trained"]
        fates_T[trained.clipped_T] = _CODE["clipped"]
        fates_T[trained.taught_T] = _CODE["trained"]
    if sampled_T[0]:
        fates_T[0] = _CODE["first"]
    return fates_T


def runs(values_T: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal values: (start, end, value), which cover the whole array."""
    if not len(values_T):
        return
    ends = [*(np.flatnonzero(values_T[1:] != values_T[:-1]) + 1).tolist(), len(values_T)]
    start = 0
    for end in ends:
        yield start, end, int(values_T[start])
        start = end


def _sampled(sequence: TokenSequence, shared: int, pieces: Pieces) -> Line:
    tokens = sequence.tokens_T[shared:].tolist()
    known_T = sequence.generated_T
    if sequence.recomputed_T is not None:
        known_T = known_T & ~sequence.recomputed_T
    logprobs_T = np.where(known_T, sequence.logprobs_T, np.nan)[shared:]
    return {"tokens": tokens, "pieces": pieces(tokens), "logprobs": _rounded(logprobs_T)}


def _trained(trained: TrainedSequence, shared: int, rollout_advantage: float | None) -> Line:
    trained_T, advantages_T = trained.trained_T[shared:], trained.advantages_T[shared:]
    parts: Line = {"trained_logprobs": _rounded(np.where(trained_T, trained.logprobs_T[shared:], np.nan))}
    if (advantages_T[trained_T] != rollout_advantage).any():
        parts["advantages"] = _rounded(np.where(trained_T, advantages_T, np.nan))
    return parts


def _runs(sequence: TokenSequence, shared: int, fates_T: Codes) -> Line:
    steps_T: Ints = np.where(sequence.generated_T, sequence.policy_step_T, UNKNOWN_STEP)[shared:]
    return {
        "policy_steps": [run for run in runs(steps_T) if run[2] != UNKNOWN_STEP],
        "fates": [(start, end, _FATES[code]) for start, end, code in runs(fates_T)],
    }


def _rollouts(facts: GroupFacts, sequences_S: Sequence[Line]) -> Iterator[Line]:
    group, story = facts.group, facts.group.story
    owners = group.rollout_of_S.tolist()
    for rollout, reward in enumerate(group.scores_R.tolist()):
        own = [index for index, owner in enumerate(owners) if owner == rollout]
        yield line_of(
            RolloutRecord,
            reward=reward,
            **_given(worth=facts.worth_R[rollout] if facts.worth_R else None),
            advantage=_advantage(facts, rollout),
            **_given(components=_at(story.components_R, rollout), messages=_at(story.messages_S, own[0])),
            sequences=[sequences_S[index] for index in own],
        )


def _advantage(facts: GroupFacts, rollout: int) -> float | None:
    return None if facts.advantages_R is None else float(facts.advantages_R[rollout])


def _at(rows: object, index: int) -> object:
    """What others sent: it may be shorter, or no list."""
    return rows[index] or None if isinstance(rows, list) and index < len(rows) else None


def _given(**fields: Any) -> Line:
    """Those that are known."""
    return {name: value for name, value in fields.items() if value is not None}


def _rounded(values_T: Floats) -> Floats:
    return values_T.round(DECIMALS)
