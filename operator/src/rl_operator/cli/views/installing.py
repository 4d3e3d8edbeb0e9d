"""What an install does, and for how long: a moving line on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from rl_operator.cli.printing import duration
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
        typer.echo(f"Installing {what}", err=True)
        yield _plain(begun)
        return
    from rich.console import Console

    with Console(stderr=True).status(f"Installing {what}") as status:

        def show(step: str) -> None:
            seconds = duration(time.monotonic() - begun)
            status.update(f"Installing {what}, {seconds}: {cut(step, LINE_WIDTH)}".replace("[", r"\["))

        yield show


def _plain(begun: float) -> Progress:
    last = -PLAIN_SECONDS

    def show(step: str) -> None:
        nonlocal last
        now = time.monotonic() - begun
        if step and now - last >= PLAIN_SECONDS:
            last = now
            typer.echo(f"  {duration(now):>6}  {cut(step, LINE_WIDTH)}", err=True)

    return show
