from decimal import Decimal

import pytest

from rl_operator.check.quantities import parse_quantity


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [(2, 2), ("2", 2), ("500m", Decimal("0.5")), (".5", Decimal("0.5")), ("1.", 1), ("1Ki", 1024),
     ("1.5Gi", 1610612736), ("1k", 1000), ("1e3", 1000), ("1E", 10**18), ("12E2", 1200)],
)  # fmt: skip
def test_amounts(quantity: str | int, amount: Decimal) -> None:
    assert parse_quantity(quantity) == amount


@pytest.mark.parametrize("quantity", ["", "half", "-1", -1, "1 Gi", "1gi", "1GiB", "Gi", "0x10", "1e", "١"])
def test_what_is_no_quantity(quantity: str | int) -> None:
    assert parse_quantity(quantity) is None
