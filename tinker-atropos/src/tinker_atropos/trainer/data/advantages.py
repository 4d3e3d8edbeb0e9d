"""From the rewards that the environment gave to the advantages of one group's rollouts. Pure numpy.

The rewards that people see (`reward/mean`, rollout files) stay the environment's own. Axis: _R rollouts of one group.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.trainer.data.groups import Group

Strategy = Callable[[Floats], Floats]


def group_centered(scores_R: Floats) -> Floats:
    """Score minus the group's mean: GRPO without the division by the deviation (Dr. GRPO, arXiv:2503.20783)."""
    centered_R: Floats = scores_R - scores_R.mean()
    return centered_R


def leave_one_out(scores_R: Floats) -> Floats:
    """Score minus the mean of the group's *other* rollouts (RLOO, arXiv:2402.14740)."""
    others_R: Floats = (scores_R.sum() - scores_R) / (len(scores_R) - 1)
    return scores_R - others_R


def group_normalized(scores_R: Floats) -> Floats:
    """Score minus mean, over the group's (population) standard deviation (GRPO, arXiv:2402.03300)."""
    normalized_R: Floats = group_centered(scores_R) / scores_R.std()
    return normalized_R


ADVANTAGES: Mapping[str, Strategy] = MappingProxyType(
    {"group_centered": group_centered, "leave_one_out": leave_one_out, "group_normalized": group_normalized}
)
"""The strategies that `trainer.advantage` may name."""


def advantages(scores_R: Floats, strategy: Strategy) -> Floats:
    """Equal scores, and a group of one, have an advantage of exactly 0: rounding in a mean must not create one."""
    if (scores_R == scores_R[0]).all():
        return np.zeros_like(scores_R)
    return strategy(scores_R)


FULL_REWARD = 1.0
"""A rollout with this reward or more has passed, as evaluations count it."""

PENALTY_TOKENS = 1000.0
"""`trainer.length_penalty` is what so many tokens cost at a pass rate of 1."""

TruncationPolicy = Callable[[Floats, Bools], Floats]


TRUNCATION: Mapping[str, TruncationPolicy] = MappingProxyType(
    {
        "train": lambda rewards_R, _truncated_R: rewards_R,
        "mask": lambda rewards_R, _truncated_R: rewards_R,
        "zero": lambda rewards_R, truncated_R: np.where(truncated_R, 0.0, rewards_R),
        "clamp": lambda rewards_R, truncated_R: np.where(truncated_R, np.minimum(rewards_R, 0.0), rewards_R),
    }
)
"""What `trainer.truncated_rollouts` may name: the reward of a rollout that was cut off by length. `mask` keeps it in
the baseline, and trains none of its tokens (DAPO's overlong filtering, arXiv:2503.14476).
"""


def length_penalized(rewards_R: Floats, tokens_R: Floats, passed_R: Bools, coefficient: float) -> Floats:
    """Is r - coefficient * p * N / 1000, with N the rollout's sampled tokens and p the share of the group that passed.

    Easy items pay for every token, and hard ones do not. ALP (arXiv:2506.05256) has max(p, 1 / K) for K rollouts in the
    place of p: there, a group that nobody solved is taught by nothing but its lengths to give up sooner.
    """
    penalized_R: Floats = rewards_R - coefficient * passed_R.mean() * tokens_R / PENALTY_TOKENS
    return penalized_R


def shaped_rewards(group: Group, config: TrainerSettings) -> Floats:
    """In this order: what a truncated rollout is worth, then the length penalty. Whether a rollout passed is judged by
    the environment's own reward.
    """
    rewards_R = group.scores_R
    shaped_R = TRUNCATION[config.truncated_rollouts](rewards_R, group.truncated_R)
    if not config.length_penalty:
        return shaped_R
    return length_penalized(shaped_R, group.sampled_tokens_R, rewards_R >= FULL_REWARD, config.length_penalty)


def group_advantages(group: Group, config: TrainerSettings) -> Floats:
    """The advantage of each rollout: where the environment gave its tokens advantages of their own, the mean of those
    that can be trained.
    """
    advantages_R = advantages(shaped_rewards(group, config), ADVANTAGES[config.advantage])
    own: defaultdict[int, list[Floats]] = defaultdict(list)
    for sequence, rollout in zip(group.sequences_S, group.rollout_of_S.tolist(), strict=True):
        if sequence.advantages_T is not None:
            own[rollout].append(sequence.advantages_T[1:][sequence.generated_T[1:]])
    for rollout, rows in own.items():
        own_N = np.concatenate(rows)
        if len(own_N):  # equal ones as they are: rounding in a mean must not make another number of them
            advantages_R[rollout] = own_N[0] if (own_N == own_N[0]).all() else own_N.mean()
    return advantages_R


def masked_rollouts(group: Group, config: TrainerSettings) -> Bools:
    """The rollouts of which no token is trained, although their rewards count in the baseline."""
    masked_R: Bools = group.truncated_R & (config.truncated_rollouts == "mask")
    return masked_R
