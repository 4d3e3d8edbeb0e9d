"""Schedules, the division into optimizer steps, and what is said of gradients, against their formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.config.run_config import RunConfig, parse_config
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.update.optimizer import (
    SCHEDULES,
    adam_at,
    dealt_out,
    gradient_metrics,
    learning_rate_at,
)

STEPS = 12


def config(**tinker) -> RunConfig:
    env = {"total_steps": STEPS, "group_size": 2, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 64}
    return parse_config({"env": env, "tinker": tinker})


@pytest.mark.parametrize("warmup", [0, 4])
def test_a_schedule_is_its_formula(warmup) -> None:
    """All steps at once: the rates of warm-up and decay, and where they meet."""
    step_S, peak = np.arange(STEPS), 3e-4
    share_S = np.clip((step_S - warmup) / (STEPS - warmup), 0, 1)
    after = {
        "constant": np.ones(STEPS),
        "linear": 1 - share_S,
        "cosine": (1 + np.cos(np.pi * share_S)) / 2,
    }
    assert after.keys() == SCHEDULES.keys()
    for schedule, factor_S in after.items():
        expected = peak * np.where(step_S < warmup, (step_S + 1) / max(warmup, 1), factor_S)
        found = [learning_rate_at(step, peak, schedule, warmup, STEPS) for step in step_S.tolist()]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert max(found) == peak


def test_a_decay_without_warmup_is_the_cookbooks() -> None:
    scheduling = pytest.importorskip("tinker_cookbook.utils.lr_scheduling")
    for schedule in SCHEDULES:
        theirs = [1e-3 * scheduling.compute_schedule_lr_multiplier(schedule, step, STEPS) for step in range(STEPS)]
        assert [learning_rate_at(step, 1e-3, schedule, 0, STEPS) for step in range(STEPS)] == pytest.approx(theirs)


def test_a_warmup_longer_than_the_run_only_grows() -> None:
    rates = [learning_rate_at(step, 1.0, "cosine", 20, STEPS) for step in range(STEPS)]
    assert rates == pytest.approx([(step + 1) / 20 for step in range(STEPS)])


def test_adam_has_the_runs_settings_and_the_steps_rate() -> None:
    run = config(learning_rate=2e-3, learning_rate_schedule="linear", weight_decay=0.1, grad_clip_norm=0.5)
    adam = adam_at(STEPS // 2, run)
    assert (adam.learning_rate, adam.weight_decay, adam.grad_clip_norm) == (1e-3, 0.1, 0.5)
    unset = adam_at(0, config())
    assert (unset.learning_rate, unset.weight_decay, unset.grad_clip_norm) == (4e-5, 0.0, 0.0)


def datum(group: int) -> Datum:
    ones = np.ones(2)
    ids = np.array([1, 2])
    return Datum(ids, ids, -ones, ones, ones > 0, np.zeros(2, np.int64), None, 1.0, group, 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 12))
def test_groups_are_dealt_out_whole_in_order_and_evenly(groups, substeps) -> None:
    datums = [datum(group) for group in sorted(groups)]
    shares = dealt_out(datums, substeps)
    assert [each for share in shares for each in share] == datums
    held = [{each.group for each in share} for share in shares]
    assert len(shares) == min(substeps, len(set(groups)))
    assert sum(map(len, held)) == len(set(groups)), "no group is split"
    assert max(map(len, held)) - min(map(len, held)) <= 1


def test_the_gradients_norm_is_a_metric_where_it_is_reported() -> None:
    assert gradient_metrics([{"grad_norm": 1.0, "optimizer_step": 3.0}, {"grad_norm:mean": 3.0}]) == {
        "train/grad_norm": 2.0
    }
    assert gradient_metrics([{}, {"other": 1.0}]) == {}
