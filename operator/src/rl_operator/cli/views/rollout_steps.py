"""The steps whose rollouts there are, as a table."""

from collections.abc import Iterable, Iterator, Sequence

from rl_operator.rollouts.step_table import StepRow

_FATES = {"trained": "TRAINED", "no_advantage": "NO-ADV", "dropped": "DROP", "evaluated": "EVAL", "lost": "LOST"}
HEADER = ("STEP", "REWARD", *_FATES.values(), "SIZE")
WIDTHS = (5, 6, 7, 6, 5, 4, 4, 6)
GAP = 3
"""Between columns, where there is room."""


def table_lines(rows: Iterable[StepRow], width: int) -> Iterator[str]:
    """Each as soon as it is known: a large folder takes a while."""
    gap = " " * max(1, min(GAP, (width - sum(WIDTHS)) // (len(WIDTHS) - 1)))
    yield _line(HEADER, gap)
    for row in rows:
        yield _line(_cells(row), gap) + _remark(row)


def _cells(row: StepRow) -> tuple[str, ...]:
    reward = "-" if row.reward is None else f"{row.reward:.3f}"
    counts = (str(row.counts[fate] or "-") for fate in _FATES)
    return str(row.step), reward, *counts, size_text(row.bytes)


def _remark(row: StepRow) -> str:
    tried = f"  attempts {', '.join(map(str, row.attempts))}" if len(row.attempts) > 1 else ""
    return tried + (f"  {row.faults} unreadable" if row.faults else "")


def _line(cells: Sequence[str], gap: str) -> str:
    return gap.join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def size_text(size: int) -> str:
    """`812 B`, `20 kB`, `1.3 MB`."""
    if size < 1e3:
        return f"{size} B"
    return f"{size / 1e3:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
