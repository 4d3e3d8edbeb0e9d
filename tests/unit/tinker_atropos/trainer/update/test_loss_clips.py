"""Which tokens a loss clips, against the formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.update.loss_clips import clip_metrics

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
