"""`rlctl tools`: the doors that agents come through."""

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from rl_operator.backends.choice import choose_backend
from rl_operator.cli.options import Context, Local, Namespace, Output, OutputFormat, StateDir
from rl_operator.cli.printing import cut_columns, print_object
from rl_operator.errors import RefusedError

if TYPE_CHECKING:
    from rl_operator.tools.tool import Tool

app = typer.Typer(
    help="Tools for agents: draft, try, start and follow runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer only the tools that change nothing.")]


@app.command("list")
def list_tools(*, read_only: ReadOnly = False, output: OutputFormat = Output.TEXT) -> None:
    """List the tools; -o json with what each takes."""
    from rl_operator.tools.schema import input_schema

    offered = _offered(read_only=read_only)
    if output in (Output.JSON, Output.YAML):
        described = [{"name": tool.name, "effect": tool.effect, "description": tool.description} for tool in offered]
        schemas = [{"parameters": input_schema(tool)} for tool in offered]
        items = [head | schema for head, schema in zip(described, schemas, strict=True)]
        print_object({"tools": items}, output)
        return
    rows = [[tool.name, tool.effect, ", ".join(tool.arguments.model_fields), tool.title] for tool in offered]
    typer.echo(cut_columns(["NAME", "EFFECT", "PARAMETERS", "TITLE"], rows))


@app.command("mcp")
def serve_mcp(
    *,
    agent: Annotated[str, typer.Option("--agent", help="Which of your agents this is: it finds its own drafts.")] = "",
    read_only: ReadOnly = False,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Serve the tools over MCP to the program that started this one, on stdin and stdout."""
    _require_extra()
    from rl_operator.tools.desk import Desk
    from rl_operator.tools.mcp_server import serve_stdio

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    desk = Desk(backend, namespace or backend.namespace, agent=agent)
    serve_stdio(_offered(read_only=read_only), desk)


def _offered(*, read_only: bool) -> "list[Tool]":
    from rl_operator.tools.toolset import TOOLS

    return [tool for tool in TOOLS if tool.reads_only or not read_only]


def _require_extra() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise RefusedError("the package mcp is not installed: pip install 'rl-operator[tools]' brings it")
