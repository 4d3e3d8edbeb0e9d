"""`tinker-atropos`: one command per container, and the tools around them."""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from tinker_atropos.errors import ExitCode, RunError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

# Each command imports what it needs: `tinker-atropos environments` must not pay for torch or the SDK.


@app.command()
def api(
    data: Annotated[Path, typer.Option(help="Folder of the journal.")] = Path("./api"),
) -> None:
    """Serve the trajectory API."""
    from tinker_atropos.settings import load_settings
    from tinker_atropos.trajectory_api.main import run_api

    _run(run_api(load_settings("api"), data))


@app.command()
def trainer(
    config: Annotated[Path, typer.Option(help="The run's config file.")],
) -> None:
    """Train against a Tinker backend, and serve inference from the current policy."""
    from tinker_atropos.settings import load_settings
    from tinker_atropos.trainer.main import run_trainer

    _run(run_trainer(load_settings("trainer"), config))


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run a container's main coroutine; a RunError becomes one line on stderr and its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(main)
    except RunError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    raise typer.Exit(ExitCode.DONE)


def main() -> None:
    app()
