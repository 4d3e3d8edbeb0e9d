import math

import pytest

from rl_contract.status_metrics import is_metric
from rl_operator.status.observed.history import round_metric

NO_FIGURES = ["1", None, True, False, math.nan, math.inf, -math.inf, 10**400, [], {}]


@pytest.mark.parametrize("value", NO_FIGURES, ids=[repr(value)[:12] for value in NO_FIGURES])
def test_values_that_are_not_metrics(value: object) -> None:
    assert not is_metric(value)


@pytest.mark.parametrize("value", [0, -3, 0.5, 2e-6, 1e200])
def test_values_that_are_metrics(value: float) -> None:
    assert is_metric(value)


@pytest.mark.parametrize(("value", "rounded"), [(0.712345, 0.7123), (2.34567e-6, 2.346e-6), (123456.7, 123500.0)])
def test_significant_digits_are_kept(value: float, rounded: float) -> None:
    assert round_metric(value) == rounded
