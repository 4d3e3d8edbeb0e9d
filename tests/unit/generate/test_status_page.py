"""The reference page of phases, conditions and reasons."""

from pathlib import Path

from generate.status_page import CONDITIONS, PEOPLE, page
from generate.transitions import TRANSITIONS
from rl_operator.status.text.phase_table import TABLE, Situation
from rl_operator.status.text.reasons import REASONS


def test_the_page_is_up_to_date() -> None:
    assert Path("docs/reference/status.md").read_text() == page(), "run 'make generate'"


def test_nothing_is_left_out() -> None:
    text = page()
    assert all(f"| `{reason}` |" in text for reason in REASONS)
    assert text.count(" --> ") == len(TRANSITIONS) + 2, "every transition, and an end after each of the two last phases"
    assert {type_ for row in TABLE.values() for type_ in row.conditions} == set(CONDITIONS)
    assert set(PEOPLE) == set(Situation)


def test_no_cell_breaks_the_table() -> None:
    tables = [queue_position for queue_position in page().splitlines() if queue_position.startswith("|")]
    assert {queue_position.count("|") for queue_position in tables} == {3, 5, 12}
