"""Whether a group can be trained on, and how it was sampled. A group is admitted whole or not at all."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_contract.rollout_fates import DropReason
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import SampleRefusedError
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, Shaping, TokenSequence
from tinker_atropos.trainer.inference.ledger import Attribution, Ledger
from tinker_atropos.trainer.trajectories.sampling_probe import SamplingProbe

PROBE_PROMPT_TOKENS = 32


class UnusableError(Exception):
    """One group cannot be trained on; the message says why. `group`: with what the ledger knows of it, if that was
    looked up.
    """

    group: Group | None = None

    def __init__(self, reason: DropReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Admitted:
    """A group ready to be trained; `recomputed` of its sequences got their logprobs from a forward pass."""

    group: Group
    recomputed: int


@dataclass(frozen=True)
class Admission:
    """Checks groups, one by one."""

    ledger: Ledger
    policy: CurrentPolicy
    config: TrainerSettings
    _probe: SamplingProbe = field(default_factory=SamplingProbe)

    async def admit(self, group: Group, step: int) -> Admitted:
        """The group for step `step`. Raises UnusableError."""
        policy = self.policy.latest
        assert policy is not None, "there is a policy before there is a batch"
        _check_length(group, self.config.max_token_trainer_length)
        attributions = [self.ledger.attribute(sequence, group.received_at) for sequence in group.sequences_S]
        group = replace(
            group, sequences_S=tuple(each.sequence for each in attributions), shaping=_shaping(attributions)
        )
        try:
            return await self._admitted(group, attributions, policy, step)
        except UnusableError as error:
            error.group = group
            raise

    async def _admitted(self, group: Group, attributions: Sequence[Attribution], policy: Policy, step: int) -> Admitted:
        await self._check_sampling(attributions, policy)
        missing = [attribution for attribution in attributions if attribution.missing]
        if missing and self.config.missing_logprobs == "refuse":
            raise UnusableError(
                "no_logprobs", "the logprobs of its tokens are unknown, and trainer.missing_logprobs is 'refuse'"
            )
        if missing:
            sequences_S = tuple(await asyncio.gather(*(_with_logprobs(each, policy) for each in attributions)))
            group = replace(group, sequences_S=sequences_S)
        _check_staleness(group.sequences_S, step, self.config.max_staleness)
        if self.config.dynamic_sampling and not build_batch([group], self.config).datums:
            raise UnusableError(
                "no_gradient", "every advantage in it is zero, and trainer.dynamic_sampling replaces such groups"
            )
        return Admitted(group, len(missing))

    async def _check_sampling(self, attributions: Sequence[Attribution], policy: Policy) -> None:
        generations = [generation for attribution in attributions for generation in attribution.generations]
        prompt_T = attributions[0].sequence.tokens_T[:PROBE_PROMPT_TOKENS]
        if not await self._probe.trainable(generations, policy.sampler, prompt_T):
            raise UnusableError(
                "untrainable_sampling",
                "it was sampled with temperature, top_p or top_k, and the backend's logprobs are not of that "
                "distribution; let the environment sample with temperature 1, top_p 1 and no top_k",
            )


def _shaping(attributions: Sequence[Attribution]) -> Shaping | None:
    """How all of it was sampled; None if it was not sampled alike, or part of it by nobody who is known."""
    if any(attribution.missing for attribution in attributions):
        return None
    generations = (one for attribution in attributions for one in attribution.generations)
    found = {Shaping(one.temperature, one.top_p, one.top_k) for one in generations}
    return found.pop() if len(found) == 1 else None


async def _with_logprobs(attribution: Attribution, policy: Policy) -> TokenSequence:
    """The current policy's logprobs replace the missing ones: r is then 1, which says nothing about the policy that
    sampled them. It stays unknown.
    """
    if not attribution.missing:
        return attribution.sequence
    sequence = attribution.sequence
    try:
        recomputed_T = await policy.sampler.logprobs(sequence.tokens_T)
    except SampleRefusedError as error:
        raise UnusableError("no_logprobs", f"its logprobs cannot be recomputed: {error}") from error
    logprobs_T, replaced_T = sequence.logprobs_T.copy(), np.zeros(len(sequence.tokens_T), np.bool_)
    for start, end in attribution.missing:
        logprobs_T[start:end] = recomputed_T[start:end]
        replaced_T[start:end] = True
    return replace(sequence, logprobs_T=logprobs_T, recomputed_T=replaced_T)


def _check_length(group: Group, limit: int) -> None:
    longest = max(len(sequence.tokens_T) for sequence in group.sequences_S)
    if longest > limit:
        raise UnusableError("too_long", f"it has {longest} tokens, trainer.max_token_trainer_length is {limit}")


def _check_staleness(sequences_S: Sequence[TokenSequence], step: int, max_staleness: int) -> None:
    """Raises UnusableError for a stale group. Unknown steps are not checked: they are counted in the metrics."""
    steps = np.concatenate([sequence.policy_step_T for sequence in sequences_S])
    known = steps[steps != UNKNOWN_STEP]
    if len(known) and step - known.min() > max_staleness:
        raise UnusableError(
            "stale",
            f"it was sampled {step - known.min()} policy steps ago, trainer.max_staleness is {max_staleness}",
        )
