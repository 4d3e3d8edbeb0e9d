"""Text for users: columns, numbers, ages; JSON and YAML for programs."""

import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from rl_operator.cli.options import OutputKind
from rl_operator.status.text.figure_text import duration
from rl_operator.status.text.sentences import cut, without_control

PROGRAM = "rlctl"
BARS = "▁▂▃▄▅▆▇█"
TEXT_WIDTH = 99
CURVE_WIDTH = 40
UNBROKEN = "\u00a0"
_INSIDE_INTERVAL = re.compile(r"(?<=\d\.\d{3}) (?=\[\d)|(?<=\[\d\.\d{3},) (?=\d\.\d{3}\])")
_WIDE_GAP = re.compile(r"(?<=\S) {3,}")
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Me")
"""Categories of Unicode; a terminal guesses how wide the last ones are."""


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, as kubectl prints them."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows))
    return "\n".join(line.rstrip() for line in lines)


def cut_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns whose lines are cut where they would be longer than TEXT_WIDTH."""
    return "\n".join(cut(line, TEXT_WIDTH) for line in columns(header, rows).splitlines())


def fitting_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], dispensable: Iterable[str], width: int | None = None
) -> tuple[str, list[str]]:
    """Columns for a terminal, without those that it has no room for; these, too. The first dispensable one goes first;
    elsewhere all are there.
    """
    width = text_width() if width is None else width
    names, cells, left_out = list(header), [list(row) for row in rows], list[str]()
    for name in dispensable:
        if max(map(len, columns(names, cells).splitlines())) <= width:
            break
        if name in names:
            place = names.index(name)
            left_out.append(names.pop(place))
            cells = [[*row[:place], *row[place + 1 :]] for row in cells]
    return columns(names, cells), left_out


def text_width(elsewhere: int = sys.maxsize) -> int:
    """The columns of the terminal; without one, what is given: no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else elsewhere


def fitted(texts: Iterable[str], width: int | None = None) -> str:
    """Texts for a terminal, their lines broken between words where it is narrower; elsewhere they stay whole."""
    width = text_width() if width is None else width
    lines = (line for text in texts for line in text.split("\n"))
    return "\n".join(part for line in lines for part in (_broken(line, width) if len(line) > width else [line]))


def _broken(line: str, width: int) -> list[str]:
    """An interval stays whole, and what aligned a column is left out."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    whole = _WIDE_GAP.sub("  ", _INSIDE_INTERVAL.sub(UNBROKEN, line))
    parts = textwrap.wrap(
        whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    return [part.replace(UNBROKEN, " ") for part in parts]


def one_line(text: str) -> str:
    """What others wrote, as one line that can neither steer a terminal, nor hide or reorder what stands in it."""
    return " ".join(visible(text).split())


def visible(line: str) -> str:
    """The same, with its spaces as they are; line ends and tabs become spaces. Without control, format, private and
    unassigned characters, and those that change the width of another.
    """
    spaced = (" " if character.isspace() else character for character in without_control(line))
    return "".join(
        each for each in spaced if unicodedata.category(each) not in UNSEEN and not "\ufe00" <= each <= "\ufe0f"
    )


def program() -> str:
    """The name of this program as the user calls it: printed commands are meant to be pasted."""
    called = Path(sys.argv[0])
    if called.name == "kubectl-rl":
        return "kubectl rl"
    if called.name != PROGRAM or shutil.which(PROGRAM):
        return PROGRAM
    return os.path.relpath(called)


def print_object(value: object, output: OutputKind) -> None:
    if output is OutputKind.JSON:
        typer.echo(json.dumps(value, indent=2))
        return
    from rl_operator.documents.yaml_text import write_yaml

    typer.echo(write_yaml(value), nl=False)


def sparkline(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """A curve in one line, of at most `width` points, evenly spaced; the lowest and highest value set the scale."""
    if not values:
        return ""
    shown = values[:: max(1, -(-len(values) // width))]
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def age(timestamp: str | None, until: str | None = None) -> str:
    """From one RFC 3339 time to another, or to now."""
    if timestamp is None:
        return "-"
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    return duration((end - datetime.fromisoformat(timestamp)).total_seconds())
