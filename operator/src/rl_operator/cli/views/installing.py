"""What an install does, and for how long: a moving line on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from rl_operator.status.text.figure_text import duration
from rl_operator.status.text.sentences import cut

PLAIN_SECONDS = 10.0
"""How often a line is printed where nothing can move."""

LINE_WIDTH = 90

Progress = Callable[[str], None]


@contextmanager
def installing(what: str) -> Iterator[Progress]:
    """Gives what is called with each step, and again and again while it takes time."""
    begun = time.monotonic()
    if not sys.stderr.isatty():
        yield _plain(what, begun)
        return
    with Console(stderr=True).status(escape(f"Installing {what}")) as status:

        def show(step: str) -> None:
            seconds = duration(time.monotonic() - begun)
            status.update(escape(f"Installing {what}, {seconds}: {cut(step, LINE_WIDTH)}"))

        yield show


def _plain(what: str, begun: float) -> Progress:
    last: float | None = None

    def show(step: str) -> None:
        nonlocal last
        now = time.monotonic() - begun
        if last is None:
            typer.echo(f"Installing {what}", err=True)
            last = -PLAIN_SECONDS
        if step and now - last >= PLAIN_SECONDS:
            last = now
            typer.echo(f"  {duration(now):>6}  {cut(step, LINE_WIDTH)}", err=True)

    return show
