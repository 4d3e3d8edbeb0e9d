import pytest

from rl_operator.rollouts.token_ledger import TokenLedger, by_known_fate, is_arrived, percent

TOLD = {"trained": 10_001, "no_advantage": 1_500, "dropped": 533}


def test_a_ledger_that_balances_is_one_sentence() -> None:
    ledger = TokenLedger(TOLD, TOLD)
    assert ledger.balances
    assert list(ledger.sentences()) == [
        "12,034 tokens arrived: 10,001 trained (83 %), 1,500 no advantage (12 %), 533 dropped (4 %)"
    ]


def test_one_that_does_not_says_where() -> None:
    ledger = TokenLedger(TOLD, TOLD | {"trained": 10_000, "first": 7})
    assert not ledger.balances
    assert ledger.differences() == {"trained": (10_001, 10_000), "first": (0, 7)}
    assert list(ledger.sentences())[1] == (
        "the account does NOT balance; what the step says, and what its groups hold: trained 10,001 and 10,000, "
        "first, with nothing to predict them from 0 and 7"
    )


def test_without_a_record_there_is_nothing_to_compare() -> None:
    assert TokenLedger(None, {"dropped": 5}).balances
    assert list(TokenLedger(None, {}).sentences()) == ["no tokens arrived"]


def test_fates_that_nobody_knows_count_together() -> None:
    assert by_known_fate({"x": 1, "trained": 2, "\x1b[2J": 3}) == {"trained": 2, "unknown": 4}


@pytest.mark.parametrize(
    ("part", "total", "said"),
    [(0, 0, "0 %"), (0, 5, "0 %"), (5, 5, "100 %"), (1, 1_000, "< 1 %"), (999, 1_000, "> 99 %"), (1, 8, "12 %")],
)
def test_percent(part: int, total: int, said: str) -> None:
    assert percent(part, total) == said


@pytest.mark.parametrize(
    ("fate", "reason", "arrived"),
    [
        ("trained", None, True),
        ("no_advantage", None, True),
        ("dropped", "stale", True),
        ("dropped", "equal", False),
        ("dropped", None, False),
        ("evaluated", None, False),
        ("other", None, False),
    ],
)
def test_only_what_came_to_the_trainer_is_in_its_ledger(fate: str, reason: str | None, arrived: bool) -> None:
    assert is_arrived(fate, reason) is arrived
