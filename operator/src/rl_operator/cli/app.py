"""The commands of rlctl. Each imports what it needs when it is called: start-up time is a feature."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from rl_operator import __version__
from rl_operator.cli.commands import (
    control_run,
    diff,
    doctor,
    follow_run,
    init,
    list_runs,
    render,
    rollouts,
    show_run,
    start_run,
    tools,
    trained_weights,
    ui,
    validate,
)
from rl_operator.cli.commands.environments import environments_group
from rl_operator.cli.commands.experiments import compare_runs, sweep_runs

app = typer.Typer(
    name="rlctl",
    help="Train language models with reinforcement learning: on a cluster, or on this machine with --local.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rlctl {__version__}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Never called without a command."""


_COMMANDS: Final[tuple[tuple[str, Callable[..., None], str], ...]] = (
    ("run", start_run.run, "Start a run and follow it to its end."),
    ("validate", validate.validate, "Say everything that is wrong with a run's file."),
    ("render", render.render, "Print every object that a run's file would become."),
    ("diff", diff.diff, "Compare a run's file with the live run."),
    ("init", init.init, "Print a commented run file to start from."),
    ("list", list_runs.list_runs, "List runs."),
    ("get", show_run.get, "Show one run."),
    ("watch", follow_run.watch, "Follow a run until it is over."),
    ("wait", follow_run.wait, "Wait until a run is finished or has trained N steps."),
    ("logs", follow_run.logs, "Print the log of a container of a run."),
    ("compare", compare_runs.compare, "Compare runs, or rank those of an experiment."),
    ("sweep", sweep_runs.sweep, "Make a run for each combination of values."),
    ("stop", control_run.stop, "Stop a run with a checkpoint."),
    ("resume", control_run.resume, "Start a draft, or continue a stopped run."),
    ("delete", control_run.delete, "Delete a run; its weights stay."),
    ("results", show_run.results, "Show metrics before and after, weights, checkpoint."),
    ("rollouts", rollouts.rollouts, "Show rollouts, and what became of every token."),
    ("sample", trained_weights.sample, "Talk to the trained weights of a run."),
    ("export", trained_weights.export, "Write trained weights as a PEFT folder."),
    ("ui", ui.ui, "Show runs, curves and rollouts in a browser."),
    ("doctor", doctor.doctor, "Say what is missing on this machine."),
)
"""Name, function, and what the list of commands says in one line of 80 columns."""

for name, command, summary in _COMMANDS:
    app.command(name, short_help=summary)(command)
app.add_typer(environments_group.app, name="environments")
app.add_typer(tools.app, name="tools")
