"""When a batch needs a forward pass before it is trained, and what becomes of it."""

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.update.test_trust_region import STEP, datum

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import DivergedError
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP
from tinker_atropos.trainer.update.policy_update import adjusted
from tinker_atropos.trainer.update.trust_region import mask_metrics


class Backend:
    """Answers a forward pass with these probabilities."""

    def __init__(self, p) -> None:
        self.p, self.asked = p, 0

    async def forward(self, datums):
        self.asked += 1
        return [np.log(self.p) for _ in datums]


@pytest.mark.parametrize(
    ("region", "steps", "asked"),
    [
        ("none", [STEP - 1, STEP], 0),
        ("dppo", [STEP, STEP], 0),
        ("dppo", [UNKNOWN_STEP, STEP], 0),
        ("dppo", [STEP + 1, STEP], 0),  # of an earlier attempt, which came further
        ("dppo", [STEP - 1, STEP], 1),
    ],
)
async def test_a_pass_is_made_only_if_a_token_is_stale(region, steps, asked) -> None:
    backend = Backend([0.9, 0.9])
    batch = TrainingBatch(datums=[datum([0.5, 0.8], [1.0, 1.0], steps)])
    found, seconds = await adjusted(backend, batch, TrainerSettings(trust_region=region), STEP)
    assert backend.asked == asked
    assert (seconds > 0) == bool(asked)
    assert found.masked_tokens == asked
    assert mask_metrics(found) == ({"batch/masked_tokens": 1.0, "batch/masked_fraction": 0.5} if asked else {})


async def test_dro_pulls_nothing_back_where_nothing_is_trained() -> None:
    """There, log p is compared with the present log p, and not with a probability of 1."""
    backend = Backend([0.3, 0.6])
    batch = TrainingBatch(datums=[datum([0.5, 0.5], [1.0, 1.0], [STEP, STEP], trained=[False, True])])
    found, _ = await adjusted(backend, batch, TrainerSettings(loss="dro"), STEP)
    assert np.exp(found.datums[0].logprobs_T).tolist() == pytest.approx([0.3, 0.5])
    assert found.datums[0].advantages_T.tolist() == [0.0, 1.0]
    assert mask_metrics(found) == {}


async def test_dro_within_a_trust_region_needs_one_pass() -> None:
    backend = Backend([0.3, 0.9])
    batch = TrainingBatch(datums=[datum([0.5, 0.5], [1.0, 1.0], trained=[False, True])])
    found, _ = await adjusted(backend, batch, TrainerSettings(loss="dro", trust_region="dppo"), STEP)
    assert backend.asked == 1
    assert found.datums[0].masked_T.tolist() == [False, True]
    assert np.exp(found.datums[0].logprobs_T).tolist() == pytest.approx([0.3, 0.5])


async def test_a_logprob_that_is_not_finite_is_divergence() -> None:
    batch = TrainingBatch(datums=[datum([0.5], [1.0])])
    with pytest.raises(DivergedError, match="a trained token is nan"):
        await adjusted(Backend([np.nan]), batch, TrainerSettings(trust_region="dppo"), STEP)
