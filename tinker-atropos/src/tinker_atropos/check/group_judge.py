"""One group, judged with the code of those who would receive it: the trajectory API's model of a group, and the
trainer's decoding, ledger, admission and datums.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import orjson
from pydantic import ValidationError

from rl_contract.scored_group import ScoredGroup
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.observations import AnswerSeen, GroupSeen, ReportedLogprobs, ScriptedKind, SequenceSeen
from tinker_atropos.check.scripted_policy import ScriptedPolicy
from tinker_atropos.environments.runner.reporting.counters import rewards
from tinker_atropos.environments.runner.reporting.rollout_reports import encode
from tinker_atropos.errors import first_fault
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, TokenSequence
from tinker_atropos.trainer.inference.ledger import Attribution, generated_spans
from tinker_atropos.trainer.trajectories.admission import Admission, UnusableError
from tinker_atropos.trainer.trajectories.deliveries import read_group
from tinker_atropos.trainer.trajectories.sampling_probe import shapings

SAME_LOGPROB: Final = 1e-3
"""Logprobs that differ by less are the same: an environment may round them."""


class GroupJudge:
    """`policy` None: there is no ledger to compare with, and the trainer's judgment is left out."""

    def __init__(self, tokenizer: Tokenizer, tinker: TrainerSettings, policy: ScriptedPolicy | None) -> None:
        self._tokenizer, self._tinker, self._policy = tokenizer, tinker, policy

    async def judge(self, sent: Mapping[str, Any]) -> GroupSeen:
        """`sent` as the environment passes it on."""
        earned = tuple(map(_number, rewards(sent)))
        try:
            wire = encode(sent)
            scored = ScoredGroup.model_validate_json(wire)
        except orjson.JSONEncodeError as error:
            return GroupSeen(earned, refused=f"it cannot be written as JSON: {error}")
        except ValidationError as error:
            return GroupSeen(earned, refused=first_fault(error))
        if outside := scored.outside_vocabulary(self._tokenizer.vocabulary):
            return GroupSeen(earned, refused=outside)
        return await self._judge(read_group(orjson.loads(wire), time.time()), scored)

    async def _judge(self, group: Group, scored: ScoredGroup) -> GroupSeen:
        attributions = [self._everything_sampled(sequence) for sequence in group.sequences_S]
        sequences = [self._sequence(*each) for each in zip(group.sequences_S, attributions, strict=True)]
        trained, unusable = await self._trained(group)
        earned = tuple(float(reward) for reward in group.scores_R)
        return GroupSeen(
            earned,
            unusable=unusable,
            sequences=tuple(sequences),
            rollouts=scored.rollout_of_S,
            teaches=len(set(earned)) > 1 or scored.advantages is not None,
            trained_rollouts=trained,
            prompt=self._prompt(group.sequences_S[0], attributions[0]),
            answers=tuple(
                AnswerSeen(self._answer(sequence, attribution), sequence.score, seen.tokens, seen.kind)
                for sequence, attribution, seen in zip(group.sequences_S, attributions, sequences, strict=True)
            ),
        )

    async def _trained(self, group: Group) -> tuple[int, str | None]:
        """How many of its rollouts the trainer would train on, and why none, if it drops the group."""
        if self._policy is None:
            return 0, None
        admission = Admission(self._policy.ledger, self._policy.current, self._tinker)
        try:
            admitted = await admission.admit(group, step=0)
        except UnusableError as error:
            return 0, str(error)
        return build_batch([admitted.group], self._tinker).trained_rollouts, None

    def _everything_sampled(self, sequence: TokenSequence) -> Attribution | None:
        """What the ledger finds anywhere in a sequence, whatever its masks say."""
        if self._policy is None:
            return None
        everywhere_T: Bools = np.ones(len(sequence.tokens_T), np.bool_)
        return self._policy.ledger.attribute(replace(sequence, generated_T=everywhere_T))

    def _sequence(self, sequence: TokenSequence, attribution: Attribution | None) -> SequenceSeen:
        tokens, trained = len(sequence.tokens_T), int(np.count_nonzero(sequence.generated_T))
        if attribution is None:
            return SequenceSeen(tokens, trained)
        sampled_T = _sampled(attribution)
        trained_T = sampled_T & sequence.generated_T  # what another sequence trains is a prompt here, without logprobs
        return SequenceSeen(
            tokens,
            trained,
            sampled=int(np.count_nonzero(sampled_T)),
            trained_sampled=int(np.count_nonzero(trained_T)),
            left_out=_left_out(sampled_T, sequence.generated_T),
            logprobs=_reported(sequence.logprobs_T[trained_T], attribution.sequence.logprobs_T[trained_T]),
            shaped=frozenset(shaping for each in attribution.generations for shaping in shapings(each)),
            kind=self._kind(attribution),
        )

    def _kind(self, attribution: Attribution) -> ScriptedKind | None:
        assert self._policy is not None, "there is a ledger"
        kinds = {self._policy.sampler.kind_of(generation) for generation in attribution.generations}
        return kinds.pop() if len(kinds) == 1 else None

    def _prompt(self, sequence: TokenSequence, attribution: Attribution | None) -> str:
        """The text before the first answer."""
        answered_T = _answered(sequence, attribution)
        end = int(answered_T.argmax()) if answered_T.any() else len(sequence.tokens_T)
        return self._tokenizer.decode(sequence.tokens_T[:end], skip_special_tokens=False)

    def _answer(self, sequence: TokenSequence, attribution: Attribution | None) -> str:
        return self._tokenizer.decode(sequence.tokens_T[_answered(sequence, attribution)])


def _sampled(attribution: Attribution) -> Bools:
    sampled_T: Bools = attribution.sequence.policy_step_T != UNKNOWN_STEP
    return sampled_T


def _left_out(sampled_T: Bools, trained_T: Bools) -> int:
    """Answers that are not trained at all do not count: they are another sequence's, or an earlier turn's."""
    answers = [(end - start, int(np.count_nonzero(trained_T[start:end]))) for start, end in generated_spans(sampled_T)]
    return sum(length - trained for length, trained in answers if trained)


def _answered(sequence: TokenSequence, attribution: Attribution | None) -> Bools:
    """The sampled positions; the trained ones, if none is known to be sampled."""
    if attribution is None or not _sampled(attribution).any():
        return sequence.generated_T
    return _sampled(attribution)


def _reported(given_T: Floats, sampled_T: Floats) -> ReportedLogprobs:
    """The environment's logprobs of sampled tokens beside the ledger's."""
    if not len(given_T) or np.isnan(given_T).all():
        return "not given"
    return "as sampled" if np.allclose(given_T, sampled_T, atol=SAME_LOGPROB) else "different"


def _number(reward: Any) -> float:
    """NaN for a value that is not a number."""
    try:
        return float(reward)
    except (TypeError, ValueError):
        return float("nan")
