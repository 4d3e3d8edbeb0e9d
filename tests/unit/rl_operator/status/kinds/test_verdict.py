from datetime import UTC, datetime, timedelta

import pytest

from rl_operator.status.kinds.verdict import CONDITIONS, Readiness, Verdict, conditions_of, reasons_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("readiness", Readiness)
def test_a_condition_exists_only_while_it_says_something(readiness: Readiness) -> None:
    """kstatus: an abnormal condition that is false is absent."""
    conditions = conditions_of(Verdict(readiness, "Word", "A sentence."), (), 3, NOW)
    assert {c.type: c.status for c in conditions} == CONDITIONS[readiness]
    assert {(c.reason, c.message, c.observed_generation) for c in conditions} == {("Word", "A sentence.", 3)}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = conditions_of(Verdict(Readiness.STALLED, "One", "1"), (), 1, NOW)
    second = conditions_of(Verdict(Readiness.STALLED, "Two", "2"), first, 2, NOW + timedelta(hours=1))
    third = conditions_of(Verdict(Readiness.READY, "Three", "3"), second, 3, NOW + timedelta(hours=2))
    assert {c.last_transition_time for c in second} == {"2026-01-02T03:04:05Z"}
    assert {c.last_transition_time for c in third} == {"2026-01-02T05:04:05Z"}
    assert reasons_of(first) != reasons_of(second)
