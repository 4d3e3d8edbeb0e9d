"""Datums to train on at a real Tinker service."""

from dataclasses import replace

import numpy as np

from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.data.groups import TeacherTopK


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


def taught(token: int = 5, advantage: float = 0.0) -> Datum:
    """A teacher that names 2 of 3 positions' tokens, two of one and three of the other."""
    tokens_TK = np.array([[0, 0, 0], [3, 8, 0], [token, 9, 11]])
    shares_TK = np.array([[0.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.5, 0.3, 0.2]])
    alone = datum(token)
    return replace(
        alone, advantages_T=advantage * np.ones(3), teacher=TeacherTopK(tokens_TK, shares_TK), logprobs_T=-np.ones(3)
    )
