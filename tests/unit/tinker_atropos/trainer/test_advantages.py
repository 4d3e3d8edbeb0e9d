import numpy as np
import pytest

from tinker_atropos.config import TinkerSection
from tinker_atropos.trainer.advantages import ADVANTAGES, group_centred


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 0.0], [0.5, -0.5]),
        ([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]),
        ([3.0, 0.0, 0.0], [2.0, -1.0, -1.0]),
        ([-1.0, 1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0]),
        ([0.7], [0.0]),
    ],
)
def test_a_rollout_is_compared_with_its_group(scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(group_centred(np.array(scores)), expected, atol=1e-12)


def test_there_is_a_strategy_for_every_name_that_the_config_allows() -> None:
    assert set(ADVANTAGES) == set(TinkerSection.model_fields["advantage"].annotation.__args__)
