import pytest

from rl_operator.status.text.figure_text import duration, money_spent


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.4, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86400, "1d0h"),
        (200000, "2d7h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "budget", "text"),
    [
        (0.0, None, "0.00 EUR"),
        (0.0042, None, "0.0042 EUR"),
        (1.355, 10.0, "1.35 of 10.00 EUR"),
        (12345.6, None, "12,345.60 EUR"),
    ],
)
def test_money(amount: float, budget: float | None, text: str) -> None:
    assert money_spent(amount, "EUR", budget) == text
