"""The generated part of the page of metrics."""

from pathlib import Path

import pytest

from generate.metric_page import BEGIN, END, metric_tables, with_tables
from rl_contract.logged_metrics import METRICS

PAGE = Path("docs/reference/metrics.md")


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run 'make generate'"


def test_every_metric_has_its_row() -> None:
    rows = [line for line in metric_tables().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [metric.name for metric in METRICS]


def test_no_cell_breaks_the_table() -> None:
    tables = [line.replace("\\|", "") for line in metric_tables().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {4}


def test_only_text_between_the_markers_changes() -> None:
    page = with_tables(f"# Metrics\n\n{BEGIN}out of date\n{END}\n## More\n")
    assert page.startswith(f"# Metrics\n\n{BEGIN}")
    assert page.endswith(f"{END}\n## More\n")
    assert "out of date" not in page
    assert with_tables(page) == page


@pytest.mark.parametrize("page", ["", BEGIN, END])
def test_a_page_without_a_marker_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="lacks a marker"):
        with_tables(page)
