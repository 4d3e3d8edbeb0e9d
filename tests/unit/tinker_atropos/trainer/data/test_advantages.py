import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.advantages import ADVANTAGES, advantages

ROOT2, ROOT3 = np.sqrt(2), np.sqrt(3)


@pytest.mark.parametrize(
    ("strategy", "scores", "expected"),
    [
        ("group_centered", [1.0, 0.0], [0.5, -0.5]),
        ("group_centered", [3.0, 0.0, 0.0], [2.0, -1.0, -1.0]),
        ("group_centered", [-1.0, 1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0]),
        ("leave_one_out", [1.0, 0.0], [1.0, -1.0]),
        ("leave_one_out", [3.0, 0.0, 0.0], [3.0, -1.5, -1.5]),
        ("leave_one_out", [4.0, 1.0, 1.0, 2.0], [4 - 4 / 3, 1 - 7 / 3, 1 - 7 / 3, 2 - 2]),
        ("group_normalized", [1.0, 0.0], [1.0, -1.0]),
        ("group_normalized", [3.0, 0.0, 0.0], [ROOT2, -ROOT2 / 2, -ROOT2 / 2]),  # deviation sqrt((4 + 1 + 1) / 3)
        ("group_normalized", [1.0, 2.0, 3.0], [-ROOT3 / ROOT2, 0.0, ROOT3 / ROOT2]),  # deviation sqrt(2 / 3)
    ],
)
def test_a_rollout_is_compared_with_its_group(strategy: str, scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(advantages(np.array(scores), ADVANTAGES[strategy]), expected, atol=1e-12)


@pytest.mark.parametrize("strategy", ADVANTAGES)
@pytest.mark.parametrize("scores", [[0.7], [0.1, 0.1, 0.1], [1.0] * 8, [0.3] * 7])
def test_equal_scores_and_a_group_of_one_have_exactly_no_advantage(strategy: str, scores: list[float]) -> None:
    assert advantages(np.array(scores), ADVANTAGES[strategy]).tolist() == [0.0] * len(scores)


@pytest.mark.parametrize("strategy", ADVANTAGES)
@given(scores=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=16))
def test_advantages_are_finite_and_sum_to_zero(strategy: str, scores: list[float]) -> None:
    found = advantages(np.array(scores), ADVANTAGES[strategy])
    assert np.isfinite(found).all()
    assert abs(found.sum()) <= 1e-6 * (1 + np.abs(found).sum())


def test_every_name_the_config_allows_has_a_strategy() -> None:
    assert set(ADVANTAGES) == set(TrainerSettings.model_fields["advantage"].annotation.__args__)
