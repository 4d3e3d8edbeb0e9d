"""Text for users: columns, numbers, ages; JSON and YAML for programs."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from rl_operator.cli.options import Output
from rl_operator.status.text.sentences import cut

PROGRAM = "rlctl"
BARS = "▁▂▃▄▅▆▇█"
TEXT_WIDTH = 99


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, as kubectl prints them."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows))
    return "\n".join(line.rstrip() for line in lines)


def cut_columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = TEXT_WIDTH) -> str:
    """Columns whose lines are cut where they would be longer than `width`."""
    return "\n".join(cut(line, width) for line in columns(header, rows).splitlines())


def fitted(lines: Iterable[str], width: int | None = None) -> str:
    """Lines for a terminal, broken between words where it is narrower; elsewhere they stay whole."""
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    return "\n".join(part for line in lines for part in (_broken(line, width) if len(line) > width else [line]))


def _broken(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def program() -> str:
    """The name of this program as the user calls it: printed commands are meant to be pasted."""
    called = Path(sys.argv[0])
    if called.name == "kubectl-rl":
        return "kubectl rl"
    if called.name != PROGRAM or shutil.which(PROGRAM):
        return PROGRAM
    return os.path.relpath(called)


def print_object(value: Any, output: Output) -> None:
    """As JSON or YAML."""
    if output is Output.JSON:
        typer.echo(json.dumps(value, indent=2))
        return
    from rl_operator.documents.yaml_text import write_yaml

    typer.echo(write_yaml(value), nl=False)


def sparkline(values: Sequence[float]) -> str:
    """A curve in one line; the lowest and highest value set the scale."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """A fraction with its 95 % interval."""
    if value is None:
        return "-"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" if low is not None and high is not None else f"{value:.3f}"


def duration(seconds: float) -> str:
    """`38s`, `4m10s`, `3h05m`, `2d4h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def age(timestamp: str | None, until: str | None = None) -> str:
    """From one RFC 3339 time to another, or to now."""
    if timestamp is None:
        return "-"
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    return duration((end - datetime.fromisoformat(timestamp)).total_seconds())
