"""`rlctl environments [NAME]`, and the commands below it: an argument that is none of their names is a NAME."""

from typing import Any, Final

import typer
from typer.core import TyperGroup

from rl_operator.cli.commands.environments import install_environments, list_environments

DEFAULT: Final = "show"
HELP: Final = ("-h", "--help")


class DefaultsToShow(TyperGroup):
    """A group that is a command, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_command(args))

    def with_command(self, arguments: list[str]) -> list[str]:
        """The arguments, with the command that they leave out."""
        own = arguments[:1] and (arguments[0] in self.commands or arguments[0] in HELP)
        return arguments if own else [DEFAULT, *arguments]


app = typer.Typer(
    cls=DefaultsToShow,
    help="List environments, or what may be set of one; install some.",
    rich_markup_mode=None,
    context_settings={"help_option_names": [*HELP]},
)
app.command(DEFAULT, short_help="The default: environments [NAME].")(list_environments.environments)
app.command("install", short_help="Install a library in an interpreter of its own.")(install_environments.install)
app.command("installed", short_help="List the interpreters that were installed.")(install_environments.installed)
app.command("uninstall", short_help="Remove one.")(install_environments.uninstall)
