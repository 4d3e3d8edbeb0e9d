import numpy as np
import pytest
from tests.unit.tinker_atropos.run_configs import run_config

from tinker_atropos.errors import DivergedError
from tinker_atropos.trainer.data.divergence import check_gradient, check_loss, check_sample, diverged

GOOD = np.array([-0.5, -2.0])


def test_finite_numbers_pass_however_large() -> None:
    check_loss(-1e300, [GOOD, np.array([])])
    check_gradient({"grad_norm": 1e300, "optimizer_step": 3.0})
    check_gradient(None)
    check_sample(GOOD)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(DivergedError, match=rf"^the loss is {bad}$"):
        check_loss(bad, [GOOD])
    with pytest.raises(DivergedError, match=rf"^the logprob of a trained token is {bad}$"):
        check_loss(0.5, [GOOD, np.array([-0.1, bad])])
    with pytest.raises(DivergedError, match=rf"grad_norm:mean is {bad}"):
        check_gradient({"grad_norm:mean": bad})
    with pytest.raises(DivergedError, match=rf"^the logprob of a sampled token is {bad}$"):
        check_sample(np.array([bad, -0.1]))


def test_other_figures_of_a_backend_are_its_own_business() -> None:
    check_gradient({"examples_per_second": np.inf})


@pytest.mark.parametrize(
    ("env", "tinker", "remedies"),
    [
        ({}, {}, "lower trainer.learning_rate (4e-05), env.max_batches_offpolicy (3), or use trainer.loss: ppo, which"),
        ({"max_batches_offpolicy": 1}, {"loss": "ppo", "learning_rate": 0.5}, "lower trainer.learning_rate (0.5)"),
        ({}, {"loss": "cispo", "max_staleness": 0}, "lower trainer.learning_rate (4e-05)"),
    ],
)
def test_the_sentence_has_the_step_and_what_to_lower(
    env: dict[str, object], tinker: dict[str, object], remedies: str
) -> None:
    sentence = str(diverged(DivergedError("the loss is nan"), 7, run_config(env, **tinker)))
    assert sentence.startswith(f"training diverged after step 7: the loss is nan; {remedies}")
    assert len(sentence) < 250
