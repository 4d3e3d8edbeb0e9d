"""Groups to training sequences. Pure: no SDK, no I/O.

A sequence of T tokens is T-1 predictions: position t of the input predicts token t+1, so targets, logprobs and
advantages are shifted by one against the tokens. Prompt positions carry zeros and are not trained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinker_atropos.trainer.ledger import Ledger
from tinker_atropos.trainer.rollouts import Bools, Floats, Group, Ints


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence; all arrays have the length T-1 of its input."""

    input_T: Ints
    target_T: Ints
    logprobs_T: Floats
    advantages_T: Floats
    trained_T: Bools
    policy_step_T: Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """What one optimizer step trains on, and why the rest was left out (rollouts by reason)."""

    datums: list[Datum] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def trained_tokens(self) -> int:
        return sum(int(datum.trained_T.sum()) for datum in self.datums)


def build_batch(
    groups: Sequence[Group], advantage: Callable[[Floats], Floats], ledger: Ledger, max_length: int
) -> Batch:
    """Turn groups into datums, in order. A group whose advantages are all zero has no gradient and is left out."""
    batch = Batch(left_out={"no_advantage": 0, "too_long": 0, "no_logprobs": 0})
    for group in groups:
        advantages_G = advantage(group.scores_G)
        if not advantages_G.any():
            batch.left_out["no_advantage"] += len(group.rollouts_G)
            continue
        for rollout, scalar in zip(group.rollouts_G, advantages_G.tolist(), strict=True):
            if len(rollout.tokens_T) > max_length:
                batch.left_out["too_long"] += 1
                continue
            attribution = ledger.attribute(rollout)
            datum = shift(
                rollout.tokens_T, rollout.generated_T, attribution.logprobs_T, attribution.policy_step_T, scalar
            )
            if datum is None:
                batch.left_out["no_logprobs"] += 1
            else:
                batch.datums.append(datum)
    return batch


def shift(
    tokens_T: Ints, generated_T: Bools, logprobs_T: Floats, policy_step_T: Ints, advantage: float
) -> Datum | None:
    """Shift one sequence of T tokens into T-1 predictions.

    None when there is nothing to train truly: no generated token after the first, or one without a logprob.
    """
    trained_T = generated_T[1:]
    if not trained_T.any() or np.isnan(logprobs_T[1:][trained_T]).any():
        return None
    return Datum(
        input_T=tokens_T[:-1],
        target_T=tokens_T[1:],
        logprobs_T=np.where(trained_T, logprobs_T[1:], 0.0),
        advantages_T=np.where(trained_T, advantage, 0.0),
        trained_T=trained_T,
        policy_step_T=policy_step_T[1:],
    )
