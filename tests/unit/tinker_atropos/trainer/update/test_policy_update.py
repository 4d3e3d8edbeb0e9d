"""When a batch needs a forward pass before it is trained, and what becomes of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trainer.update.test_loss_clips import STEP, datum

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import DivergedError
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.update.policy_update import adjusted, base_metrics, differences, penalized

LOGPROBS = st.floats(-20, 0)
TOKENS = st.tuples(LOGPROBS, LOGPROBS | st.just(np.nan), st.booleans(), st.floats(-2, 2))
"""Of each token: sampled and base logprob (NaN: unknown), whether it is trained, and its advantage."""


def row(tokens) -> tuple[Datum, np.ndarray]:
    """A datum, and the base model's logprobs of its sequence."""
    q_T, base_T, trained_T, advantages_T = (np.array(column) for column in zip(*tokens, strict=True))
    trained_T = trained_T.astype(bool)
    ids = np.arange(len(q_T))
    datum = Datum(
        input_T=ids,
        target_T=ids,
        logprobs_T=np.where(trained_T, q_T, 0.0),
        advantages_T=np.where(trained_T, advantages_T, 0.0),
        trained_T=trained_T,
        policy_step_T=np.zeros(len(ids), np.int64),
        distilled_T=None,
        score=1.0,
        group=0,
        rollout=0,
    )
    return datum, np.concatenate([[np.nan], base_T])


@given(st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=4), st.floats(0.01, 10))
def test_the_penalty_is_its_formula_and_has_a_mean_of_zero(rows, coefficient) -> None:
    """A_t + coefficient (mean d - d_t), d = log q - log p_base: incorporate_kl_penalty of tinker-cookbook."""
    datums, base = zip(*map(row, rows), strict=True)
    apart = differences(datums, base)
    found = penalized(datums, apart, coefficient)
    counted = [datum.trained_T & ~np.isnan(base_T[1:]) for datum, base_T in zip(datums, base, strict=True)]
    d_N = np.concatenate([(x.logprobs_T - b[1:])[m] for x, b, m in zip(datums, base, counted, strict=True)])
    for before, after, base_T, mask in zip(datums, found, base, counted, strict=True):
        added_T = after.advantages_T - before.advantages_T
        assert not added_T[~mask].any(), "only what is trained, and known to the base model"
        if mask.any():
            expected = coefficient * (d_N.mean() - (before.logprobs_T - base_T[1:])[mask])
            np.testing.assert_allclose(added_T[mask], expected, atol=1e-9 * coefficient * 40)
    total = sum(
        after.advantages_T.sum() - before.advantages_T.sum() for before, after in zip(datums, found, strict=True)
    )
    assert total == pytest.approx(0, abs=1e-7 * coefficient)


@given(st.lists(TOKENS, min_size=1, max_size=20))
def test_the_estimators_are_k1_and_k3(tokens) -> None:
    """http://joschu.net/blog/kl-approx.html with x from q: r = p / q, k1 = -log r, k3 = (r - 1) - log r."""
    datum, base_T = row(tokens)
    metrics = base_metrics(np.concatenate(differences([datum], [base_T])))
    mask = datum.trained_T & ~np.isnan(base_T[1:])
    if not mask.any():
        assert metrics == {}
        return
    log_r_N = (base_T[1:] - datum.logprobs_T)[mask]
    assert metrics["kl/base_v1"] == pytest.approx((-log_r_N).mean())
    assert metrics["kl/base"] == pytest.approx((np.exp(log_r_N) - 1 - log_r_N).mean(), rel=1e-6, abs=1e-9)
    assert metrics["kl/base"] >= 0


def test_without_a_coefficient_or_a_base_nothing_changes() -> None:
    datum, base_T = row([(-1.0, np.nan, True, 0.5), (-2.0, -1.0, False, 0.0)])
    apart = differences([datum], [base_T])
    assert penalized([datum], apart, 1.0) == [datum]
    assert penalized([datum], differences([datum], [np.full(3, -1.0)]), 0.0) == [datum]
    assert base_metrics(np.concatenate(apart)) == {}


class Backend:
    """Answers a forward pass with these probabilities."""

    def __init__(self, p) -> None:
        self.p, self.asked = p, 0

    async def forward(self, datums):
        self.asked += 1
        return [np.log(self.p) for _ in datums]


@pytest.mark.parametrize(("loss", "asked"), [("importance_sampling", 0), ("dro", 1)])
async def test_only_a_loss_that_pulls_back_needs_a_pass(loss, asked) -> None:
    backend = Backend([0.9, 0.9])
    batch = TrainingBatch(datums=[datum([0.5, 0.8], [1.0, 1.0], [STEP - 1, STEP])])
    found, seconds = await adjusted(backend, batch, TrainerSettings(loss=loss))
    assert (backend.asked, seconds > 0, found is batch) == (asked, bool(asked), not asked)


async def test_dro_pulls_nothing_back_where_nothing_is_trained() -> None:
    """There, log p is compared with the present log p, and not with a probability of 1."""
    backend = Backend([0.3, 0.6])
    batch = TrainingBatch(datums=[datum([0.5, 0.5], [1.0, 1.0], [STEP, STEP], trained=[False, True])])
    found, _ = await adjusted(backend, batch, TrainerSettings(loss="dro"))
    assert np.exp(found.datums[0].logprobs_T).tolist() == pytest.approx([0.3, 0.5])
    assert found.datums[0].advantages_T.tolist() == [0.0, 1.0]


async def test_a_logprob_that_is_not_finite_is_divergence() -> None:
    batch = TrainingBatch(datums=[datum([0.5], [1.0])])
    with pytest.raises(DivergedError, match="a trained token is nan"):
        await adjusted(Backend([np.nan]), batch, TrainerSettings(loss="dro"))
