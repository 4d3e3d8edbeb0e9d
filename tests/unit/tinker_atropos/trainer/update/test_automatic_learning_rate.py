"""`learning_rate: auto` is tinker-cookbook's rule, and where that has none, a refusal that says what to do."""

import json
from pathlib import Path

import pytest

from tinker_atropos.bundled import BUNDLED
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.update.automatic_learning_rate import (
    WIDTHS,
    automatic_learning_rate,
    with_learning_rate,
)

ENV = {"total_steps": 4, "group_size": 2, "batch_size": 2, "max_token_length": 64}


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
        f"tinker.learning_rate is 'auto', and for the model 'mine' that is no number: {why}; "
        "set tinker.learning_rate to a number, such as 4e-5"
    )


def test_the_config_gets_the_number_once() -> None:
    auto = parse_config({"env": ENV | {"tokenizer_name": BUNDLED}, "tinker": {"learning_rate": "auto", "seed": 3}})
    found = with_learning_rate(auto).tinker
    assert (found.learning_rate, found.seed) == (automatic_learning_rate(BUNDLED, BUNDLED), 3)
    given = parse_config({"env": ENV | {"tokenizer_name": "no/such-model"}})
    assert with_learning_rate(given) is given, "a number needs no config of the model"
