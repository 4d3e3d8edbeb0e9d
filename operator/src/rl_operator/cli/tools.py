"""`rlctl tools`: the doors that agents come through."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_operator.backends.backend import BackEnd
from rl_operator.backends.choice import choose_backend
from rl_operator.cli.options import Context, Local, Namespace, Output, OutputFormat, StateDir
from rl_operator.cli.printing import cut_columns, print_object
from rl_operator.errors import RefusedError
from rl_operator.local.layout import Layout, default_state_folder

if TYPE_CHECKING:
    from rl_operator.tools.callers import Callers
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
    rows = [[tool.name, tool.effect, tool.title, ", ".join(tool.arguments.model_fields)] for tool in offered]
    typer.echo(cut_columns(["NAME", "EFFECT", "TITLE", "PARAMETERS"], rows))


@app.command("skill")
def print_skill() -> None:
    """Print how agents should use the tools: a SKILL.md."""
    from rl_operator.tools.skill import skill_text

    typer.echo(skill_text(), nl=False)


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


@app.command("serve")
def serve_http(
    *,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than loopback: with TLS in front.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 8080,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name of this server in a public domain; may be repeated."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="With --local: who may call, one token per line; default: one that is made."),
    ] = None,
    read_only: ReadOnly = False,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Serve this one alone; default: the one that X-RL-Namespace names, else the context's.",
        ),
    ] = "",
) -> None:
    """Serve the tools over HTTP: plain routes, and MCP at /mcp.

    Every request needs Authorization: Bearer TOKEN. In front of a cluster that is the caller's own Kubernetes token,
    and the caller's rights are the only ones used.
    """
    _require_extra()
    from rl_operator.tools.calls import Calls
    from rl_operator.tools.gateway import build_app
    from rl_operator.tools.serving import address_of, listen, serve

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    callers, calls = _callers(backend, namespace, token_file, state_dir), Calls()
    app = build_app(_offered(read_only=read_only), callers, calls, hosts=allow_host or (), pinned=bool(namespace))
    listener = listen(host, port)
    typer.echo(f"Serving tools of {backend.label} at {address_of(listener)}, MCP at {address_of(listener)}/mcp")
    serve(app, listener, calls)


def _callers(backend: BackEnd, namespace: str, token_file: Path | None, state_dir: Path | None) -> "Callers":
    from rl_operator.backends.cluster import ClusterBackEnd
    from rl_operator.tools.access import make_token, read_tokens
    from rl_operator.tools.callers import ClusterCallers, LocalCallers
    from rl_operator.tools.desk import Desk

    if isinstance(backend, ClusterBackEnd):
        if token_file:
            raise RefusedError("--token-file is for --local: in front of a cluster callers bring Kubernetes tokens")
        return ClusterCallers(backend, lambda acting: Desk(acting, namespace or acting.namespace))
    if token_file is None:
        token_file = Layout(state_dir.expanduser().absolute() if state_dir else default_state_folder()).tools_token
        make_token(token_file)
        typer.echo(f"The token is in {token_file}")
    return LocalCallers(Desk(backend, namespace or backend.namespace), read_tokens(token_file, backend.note))


def _offered(*, read_only: bool) -> "list[Tool]":
    from rl_operator.tools.toolset import TOOLS

    return [tool for tool in TOOLS if tool.reads_only or not read_only]


def _require_extra() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise RefusedError("the package mcp is not installed: pip install 'rl-operator[tools]' brings it")
