"""Which tokens a trust region masks, by hand and against the formulas."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.update.trust_region import TRUST_REGIONS, clip_metrics, within

STEP = 7


def datum(sampler, advantages, steps=None, trained=None) -> Datum:
    """`sampler`: the probabilities when sampled."""
    n = len(sampler)
    trained_T = np.ones(n, np.bool_) if trained is None else np.array(trained, np.bool_)
    return Datum(
        input_T=np.arange(n), target_T=np.arange(n), logprobs_T=np.where(trained_T, np.log(sampler), 0.0),
        advantages_T=np.where(trained_T, np.array(advantages, np.float64), 0.0), trained_T=trained_T,
        policy_step_T=np.full(n, STEP - 1) if steps is None else np.array(steps), distilled_T=None, score=1.0, group=0,
        rollout=0,
    )  # fmt: skip


CASES: dict[str, list[tuple[float, float, float, bool]]] = {
    "dppo": [
        (0.5, 0.71, 1.0, True),  # it has become likelier, as its advantage asks for
        (0.5, 0.69, 1.0, False),
        (0.5, 0.29, -1.0, True),
        (0.5, 0.31, -1.0, False),
        (0.5, 0.29, 1.0, False),  # it moved against its advantage: it is pulled back
        (0.5, 0.71, -1.0, False),
        (0.001, 0.1, 1.0, False),  # a ratio of 100 moves little probability
        (0.5, 0.9, 0.0, False),  # there is nothing to mask
    ],
    "icepop": [
        (0.5, 0.24, 1.0, True),
        (0.5, 0.26, 1.0, False),
        (0.1, 0.51, -1.0, True),
        (0.1, 0.49, -1.0, False),
        (0.1, 0.51, 0.0, False),
    ],
}
"""(q, p, A, whether it is masked)."""


@pytest.mark.parametrize("region", TRUST_REGIONS)
def test_what_is_masked(region) -> None:
    q, p, advantages, masked = zip(*CASES[region], strict=True)
    (found,) = within([datum(q, advantages)], [np.log(p)], region)
    assert found.masked_T.tolist() == list(masked)
    assert found.advantages_T.tolist() == [0.0 if gone else a for a, gone in zip(advantages, masked, strict=True)]


probability = st.floats(1e-4, 1.0)
tokens = st.lists(
    st.tuples(probability, probability, st.sampled_from([-1.0, -0.25, 0.0, 0.5]), st.booleans()), min_size=1
)


@given(tokens)
def test_the_formulas(rows) -> None:
    q, p, advantages, trained = (np.array(column) for column in zip(*rows, strict=True))
    before = datum(q, advantages, trained=trained)
    q, p = np.exp(np.log(q)), np.exp(np.log(p))
    outside = {
        "dppo": ((advantages > 0) & (p - q > 0.2)) | ((advantages < 0) & (q - p > 0.2)),
        "icepop": (np.log(p) - np.log(q) < np.log(0.5)) | (np.log(p) - np.log(q) > np.log(5.0)),
    }
    for region, expected in outside.items():
        (found,) = within([before], [np.log(p)], region)
        assert (found.masked_T == (expected & trained & (advantages != 0))).all()
        assert (found.advantages_T == np.where(found.masked_T, 0.0, before.advantages_T)).all()
        assert dataclasses.replace(found, masked_T=None, advantages_T=before.advantages_T) == before


TOKEN = st.tuples(st.floats(-3.0, 0.0), st.floats(-3.0, 0.0), st.sampled_from([-1.0, 0.0, 1.0]), st.booleans())
"""log q, log p, A, and whether it is trained."""

Tokens = list[tuple[float, float, float, bool]]


def datum_of(tokens: Tokens) -> Datum:
    sampler, _, advantages, trained = (np.array(column) for column in zip(*tokens, strict=True))
    nothing = np.zeros(len(tokens), np.int64)
    return Datum(nothing, nothing, sampler, advantages, trained, nothing, None, 0.0, 0, 0)


def by_hand(loss: str, sequences: list[Tokens]) -> float:
    found = []
    for tokens in sequences:
        ratios = [np.exp(trainer - sampler) for sampler, trainer, _, trained in tokens if trained]
        advantages = [advantage for _, _, advantage, trained in tokens if trained]
        if loss == "gspo":
            ratios = [np.exp(np.mean(np.log(ratios)))] * len(ratios)
        low, high = {"ppo": (0.8, 1.2), "cispo": (0.0, 4.0), "gspo": (1 - 3e-4, 1 + 4e-4)}[loss]
        for ratio, advantage in zip(ratios, advantages, strict=True):
            stopped = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
            found.append(not low <= ratio <= high if loss == "cispo" else stopped)
    return float(np.mean(found))


@pytest.mark.parametrize("loss", ["ppo", "cispo", "gspo"])
@given(sequences=st.lists(st.lists(TOKEN, min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_share_is_that_of_the_formula(loss: str, sequences: list[Tokens]) -> None:
    trained = [tokens for tokens in sequences if any(token[3] for token in tokens)]
    rows = [np.array([token[1] for token in tokens]) for tokens in trained]
    metrics = clip_metrics(list(map(datum_of, trained)), rows, TrainerSettings(loss=loss))
    assert metrics == ({"batch/clipped_fraction": pytest.approx(by_hand(loss, trained))} if trained else {})


def test_a_loss_without_thresholds_clips_nothing_and_says_nothing() -> None:
    datum = datum_of([(-1.0, 0.0, 1.0, True)])
    assert clip_metrics([datum], [np.zeros(1)], TrainerSettings(loss="importance_sampling")) == {}
