"""Datums to train on at a real Tinker service."""

import numpy as np

from tinker_atropos.trainer.data.datums import Datum


def datum(token: int = 5, logprob: float = -1.0) -> Datum:
    """After 1, 2, 3: the tokens 2, 3 and `token`, all of them trained, with an advantage of 1."""
    ones = np.ones(3)
    return Datum(
        input_T=np.array([1, 2, 3]),
        target_T=np.array([2, 3, token]),
        logprobs_T=logprob * ones,
        advantages_T=ones,
        trained_T=np.ones(3, bool),
        policy_step_T=np.zeros(3, np.int64),
        distilled_T=None,
        score=1.0,
        group=0,
        rollout=0,
    )
