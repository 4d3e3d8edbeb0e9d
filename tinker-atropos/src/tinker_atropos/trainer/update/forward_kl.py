"""How far the policy is from a teacher that names its K likeliest tokens, before the step that it is trained on. Pure.

With w the teacher's probabilities of its K tokens, divided by their sum, and p the trainer's of the same tokens, a
token's forward KL is sum over K of w (log w - log p). It is 0 only if the policy samples these tokens as often, and no
other. Axes: _T predictions of one sequence, _K tokens, _N taught tokens of the batch.
"""

from collections.abc import Sequence

import numpy as np

from tinker_atropos.arrays import Floats
from tinker_atropos.trainer.backend.step_requests import taught
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.data.groups import TeacherTopK


def teacher_metrics(datums: Sequence[Datum], teacher_logprobs: Sequence[Floats]) -> dict[str, float]:
    """`teacher_logprobs` [T, K] are the trainer's, for each taught datum. Empty without one."""
    rows = zip(taught(datums), teacher_logprobs, strict=True)
    found = [forward_kl(teacher, row_TK)[teacher.spoken_T] for (_, teacher), row_TK in rows]
    return {"distil/forward_kl": float(np.concatenate(found).mean())} if found else {}


def forward_kl(teacher: TeacherTopK, logprobs_TK: Floats) -> Floats:
    """Of each prediction; 0 where the teacher said nothing."""
    shares_TK = teacher.shares_TK
    named_TK = shares_TK > 0
    log_shares_TK = np.log(np.where(named_TK, shares_TK, 1.0))
    kl_T: Floats = np.where(named_TK, shares_TK * (log_shares_TK - logprobs_TK), 0.0).sum(axis=-1)
    return kl_T
