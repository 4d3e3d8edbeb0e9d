"""The commands of rlctl. The module of a command is imported when it is called: start-up time is a feature
(`tests/benchmarks/cli_bench.py`), so that commands may import what they need at their top.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from rl_operator import __version__


class CommandRow(NamedTuple):
    """`module`: of `commands`; `attribute`: its function, or the Typer of a group. `summary`: in the list of commands,
    whose lines have 80 columns.
    """

    module: str
    attribute: str
    summary: str


COMMANDS: Final[Mapping[str, CommandRow]] = {
    "run": CommandRow("start_run", "run", "Start a run and follow it to its end."),
    "validate": CommandRow("run_files", "validate", "Say everything that is wrong with a run's file."),
    "render": CommandRow("run_files", "render", "Print every object that a run's file would become."),
    "diff": CommandRow("run_files", "diff", "Compare a run's file with the live run."),
    "init": CommandRow("init", "init", "Print a commented run file to start from."),
    "list": CommandRow("list_runs", "list_runs", "List runs."),
    "get": CommandRow("show_run", "get", "Show one run."),
    "watch": CommandRow("follow_run", "watch", "Follow a run until it is over."),
    "wait": CommandRow("follow_run", "wait", "Wait until a run is finished or has trained N steps."),
    "logs": CommandRow("follow_run", "logs", "Print the log of a container of a run."),
    "compare": CommandRow("compare_runs", "compare", "Compare runs, or rank those of an experiment."),
    "sweep": CommandRow("sweep_runs", "sweep", "Make a run for each combination of values."),
    "stop": CommandRow("start_run", "stop", "Stop a run with a checkpoint."),
    "resume": CommandRow("start_run", "resume", "Start a draft, or continue a stopped run."),
    "delete": CommandRow("start_run", "delete", "Delete a run; its weights stay."),
    "results": CommandRow("show_run", "results", "Show metrics before and after, weights, checkpoint."),
    "rollouts": CommandRow("show_rollouts", "rollouts", "Show rollouts, and what became of every token."),
    "replay": CommandRow("replay_step", "replay", "Compute a step again, beside what was recorded."),
    "sample": CommandRow("trained_weights", "sample", "Talk to the trained weights of a run."),
    "export": CommandRow("trained_weights", "export", "Write trained weights as a PEFT folder."),
    "ui": CommandRow("ui", "ui", "Show runs, curves and rollouts in a browser."),
    "doctor": CommandRow("doctor", "doctor", "Say what is missing on this machine."),
    "environments": CommandRow("environments", "app", "List environments, or what may be set of one; install some."),
    "tools": CommandRow("tools", "app", "Tools for agents: draft, try, start and follow runs."),
}


class ImportedCommands(Mapping[str, Any]):
    """By name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> object:
        row = COMMANDS[name]
        found = getattr(importlib.import_module(f"rl_operator.cli.commands.{row.module}"), row.attribute)
        if isinstance(found, typer.Typer):
            group = get_group(found)
            group.name = name
            return group
        info = CommandInfo(name, callback=found, short_help=row.summary)
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class ImportingGroup(TyperGroup):
    """Lists its commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = ImportedCommands()  # type: ignore[assignment]  # it is only read

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 -- the signature is Typer's
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])


app = typer.Typer(
    name="rlctl",
    cls=ImportingGroup,
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
