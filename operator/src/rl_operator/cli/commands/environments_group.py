"""`rlctl environments [NAME]`, and the commands below it: an argument that is none of their names is a NAME."""

from typing import Any, Final

import typer
from typer.core import TyperGroup

from rl_operator.cli.commands import interpreters, list_environments

DEFAULT: Final = "show"


class _DefaultsToShow(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if own else [DEFAULT, *args])


app = typer.Typer(
    cls=_DefaultsToShow,
    help="List environments, or what may be set of one; install libraries of environments.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(DEFAULT, short_help="The default: environments [NAME].")(list_environments.environments)
app.command("install", short_help="Install a library in an interpreter of its own.")(interpreters.install)
app.command("installed", short_help="List the interpreters that were installed.")(interpreters.installed)
app.command("uninstall", short_help="Remove one.")(interpreters.uninstall)
