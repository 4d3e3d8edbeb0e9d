"""The share of clipped tokens, against the formulas token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.update.clipping import clip_metrics

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
