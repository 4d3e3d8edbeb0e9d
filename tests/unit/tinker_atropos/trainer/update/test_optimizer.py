"""Schedules, the division into optimizer steps, and what is said of gradients, against their formulas."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.run_configs import run_config

from rl_contract.bundled import BUNDLED
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.data.datums import Datum
from tinker_atropos.trainer.update.optimizer import (
    SCHEDULES,
    WIDTHS,
    automatic_learning_rate,
    dealt_out,
    gradient_metrics,
    learning_rate_at,
    with_learning_rate,
)

STEPS = 12


def config(**tinker) -> RunConfig:
    return run_config({"total_steps": STEPS}, **tinker)


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
        run = config(learning_rate=peak, learning_rate_schedule=schedule, warmup_steps=warmup)
        found = [learning_rate_at(step, run) for step in step_S.tolist()]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert max(found) == peak


def test_a_decay_without_warmup_is_the_cookbooks() -> None:
    scheduling = pytest.importorskip("tinker_cookbook.utils.lr_scheduling")
    for schedule in SCHEDULES:
        theirs = [1e-3 * scheduling.compute_schedule_lr_multiplier(schedule, step, STEPS) for step in range(STEPS)]
        run = config(learning_rate=1e-3, learning_rate_schedule=schedule)
        assert [learning_rate_at(step, run) for step in range(STEPS)] == pytest.approx(theirs)


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
    """Of a sum over the tokens of each optimizer step, and of their mean."""
    assert gradient_metrics([{"grad_norm": 1.0, "optimizer_step": 3.0}, {"grad_norm:mean": 3.0}], [10, 6]) == {
        "train/grad_norm": 2.0,
        "train/grad_norm_per_token": pytest.approx(0.3),
    }
    assert gradient_metrics([{}, {"other": 1.0}], [10, 6]) == {}


def folder(path: Path, **config) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_every_known_model_has_the_cookbooks_rate() -> None:
    rules = pytest.importorskip("tinker_cookbook.hyperparam_utils")
    for model in WIDTHS:
        assert automatic_learning_rate(model, model) == pytest.approx(rules.get_lr(model), rel=1e-12), model


def test_the_rates_themselves() -> None:
    """5e-4 at a width of 2000, and less for wider ones: much less for Llama."""
    assert automatic_learning_rate("meta-llama/Llama-3.1-8B", "x") == pytest.approx(2.857e-4, rel=1e-3)
    assert automatic_learning_rate("Qwen/Qwen3-8B:peft:262144", "x") == pytest.approx(4.730e-4, rel=1e-3)


def test_the_bundled_model_is_a_small_qwen3() -> None:
    """Its width of 128 makes it 6.2e-4: below the 1e-3 that its runtime has, which learns faster."""
    assert automatic_learning_rate(BUNDLED, BUNDLED) == pytest.approx(5e-4 * (2000 / 128) ** 0.0775)


def test_a_local_folder_is_known_by_its_config_whatever_its_service_calls_it(tmp_path) -> None:
    own = folder(tmp_path / "mine", model_type="llama", hidden_size=1024, vocab_size=32)
    assert automatic_learning_rate("mine", own) == pytest.approx(5e-4 * (2000 / 1024) ** 0.781)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "mistral", "hidden_size": 4096}, "the rule is known for models of the families llama and qwen"),
        (None, "the config of that model, with its hidden size, cannot be read"),
    ],
)
def test_a_model_without_a_rule_is_refused(tmp_path, config, why) -> None:
    own = folder(tmp_path / "mine", **config) if config else str(tmp_path / "nothing")
    with pytest.raises(ConfigError) as caught:
        automatic_learning_rate("mine", own)
    assert str(caught.value) == (
        f"trainer.learning_rate is 'auto', and for the model 'mine' no rate can be computed: {why}; "
        "set trainer.learning_rate to a number, such as 4e-5"
    )


def test_the_config_gets_the_number_once() -> None:
    auto = run_config(learning_rate="auto", seed=3)
    found = with_learning_rate(auto).tinker
    assert (found.learning_rate, found.seed) == (automatic_learning_rate(BUNDLED, BUNDLED), 3)
    given = run_config({"tokenizer_name": "no/such-model"})
    assert with_learning_rate(given) is given, "a number needs no config of the model"
