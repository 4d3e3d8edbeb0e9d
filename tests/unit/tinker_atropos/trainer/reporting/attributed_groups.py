"""Groups whose tokens a ledger has attributed to policy steps."""

from typing import Any

import numpy as np

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import TrainingBatch, build_batch
from tinker_atropos.trainer.data.groups import Group
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.trajectories.deliveries import read_group

GROUP = {
    "tokens": [[1, 2, 3], [1, 4]],
    "masks": [[-100, 2, 3], [-100, 4]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, -0.125, -0.25], [1.0, -0.5]],
}


def attributed(first: int | None, second: int | None, **fields: Any) -> Group:
    """Two rollouts: two tokens sampled after step `first`, one after step `second`; None: unknown."""
    ledger = Ledger()
    if first is not None:
        ledger.record(np.array([1]), np.array([2, 3]), np.array([-0.125, -0.25]), policy_step=first)
    if second is not None:
        ledger.record(np.array([1]), np.array([4]), np.array([-0.5]), policy_step=second)
    read = read_group({**GROUP, **fields})
    return Group(tuple(ledger.attribute(one).sequence for one in read.sequences_S), read.rollout_of_S)


def batch_of(*groups: Group) -> TrainingBatch:
    return build_batch(groups, TrainerSettings())
