import logging
from datetime import UTC, datetime

import pytest

from rl_operator.metrics.outage import LONGEST_SECONDS, Outage, OutageError, retry_after

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Fri, 01 May 2026 12:02:00 GMT", 120.0),
        ("Fri, 01 May 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def test_pauses_double_up_to_a_bound_and_start_over() -> None:
    outage, pauses = Outage("https://w", 60.0), []
    for _ in range(8):
        outage.failed(OutageError("silent", "HTTP 502"), 1000.0)
        pauses.append(outage.over_at - 1000.0)
    assert pauses == [60, 120, 240, 480, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
    outage.answered()
    outage.failed(OutageError("silent", "HTTP 502"), 1000.0)
    assert outage.over_at == 1060.0


@pytest.mark.parametrize(("asked", "pause"), [(5.0, 60.0), (300.0, 300.0), (1e9, 3600.0)])
def test_a_requested_pause_is_honored_within_reason(asked: float, pause: float) -> None:
    outage = Outage("https://w", 60.0)
    outage.failed(OutageError("limited", "HTTP 429", asked), 0.0)
    assert outage.over_at == pause


def test_an_outage_is_one_line_and_its_end_is_another(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("https://w", 60.0)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            outage.failed(OutageError("silent", "HTTP 502"), 0.0)
        outage.answered()
        outage.answered()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
