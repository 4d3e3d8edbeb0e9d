"""Environments may be untrusted: what they report must not take the trainer's loop from sampling."""

import pytest

from tinker_atropos.chat.request_handling import RefusedRequestError
from tinker_atropos.trainer.rollouts import report_budget
from tinker_atropos.trainer.rollouts.report_budget import (
    BRACKET_BYTES,
    LEAST_BYTES,
    MAX_BRACKETS,
    MAX_SENDERS,
    ReportBudget,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ReportBudget:
    """Of four reports at once, and one in two seconds."""
    monkeypatch.setattr(report_budget, "AT_ONCE_BYTES", 4 * LEAST_BYTES)
    monkeypatch.setattr(report_budget, "PER_SECOND_BYTES", LEAST_BYTES // 2)
    return ReportBudget(clock)


def taken(budget: ReportBudget, *addresses: str, body: bytes = b"{}") -> int:
    """How many of the reports from these addresses are taken, until one is refused."""
    for number, address in enumerate(addresses):
        try:
            budget.spend(address, body)
        except RefusedRequestError as error:
            return number if error.status == 429 else -1
    return len(addresses)


def test_small_reports_count_too_and_room_comes_back(budget: ReportBudget, clock: Clock) -> None:
    assert taken(budget, *["a"] * 9) == 4
    clock.now += 2
    assert taken(budget, *["a"] * 9) == 1
    clock.now += 1000
    assert taken(budget, *["a"] * 9) == 4, "not more than at first"


def test_a_large_report_counts_by_its_bytes(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, body=bytes(2 * LEAST_BYTES)) == 2


def test_lists_and_objects_count_by_what_it_takes_to_read_them(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, body=b"[{" * (LEAST_BYTES // BRACKET_BYTES)) == 1


def test_one_environment_leaves_the_others_their_room(budget: ReportBudget) -> None:
    assert taken(budget, *["a"] * 9, "b") == 4
    assert taken(budget, *["b"] * 9) == 4


def test_addresses_past_the_most_share_what_they_have(budget: ReportBudget) -> None:
    assert taken(budget, *(str(number) for number in range(MAX_SENDERS))) == MAX_SENDERS
    assert taken(budget, *(f"new {number}" for number in range(9))) == 4


def test_it_says_how_long_to_wait(budget: ReportBudget) -> None:
    taken(budget, *["a"] * 4)
    with pytest.raises(RefusedRequestError, match=r"These are not kept. Report fewer, or try again in 2 s"):
        budget.spend("a", b"{}")


@pytest.mark.parametrize("bracket", [b"[", b"{"])
def test_what_takes_long_to_read_is_refused_unread(bracket: bytes) -> None:
    budget = ReportBudget(Clock())
    budget.spend("a", bracket * MAX_BRACKETS)
    with pytest.raises(RefusedRequestError, match="has 262145 lists and objects; the limit is 262144") as caught:
        budget.spend("b", bracket * (MAX_BRACKETS + 1))
    assert caught.value.status == 413


def test_a_large_evaluation_fits_at_once() -> None:
    """500 answers of 8,000 tokens, 34 bytes each, as the runner sends them."""
    budget = ReportBudget(Clock())
    assert taken(budget, *["a"] * 260, body=bytes(500 * 8_000 * 34 // 260)) == 260
