"""`rlctl tools`: the entry points for agents.

What needs an extra (mcp, starlette, jinja2) is imported once that is known to be there, and the cluster's target once
--kubeconfig is in the environment: the official client reads it when it is imported.
"""

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_operator.cli.options import (
    Context,
    Kubeconfig,
    Local,
    OutputFormat,
    OutputKind,
    Scope,
    StateDir,
    on_target,
    opened_target,
)
from rl_operator.cli.printing import cut_columns, print_object
from rl_operator.local.state.layout import Layout, default_state_folder
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Target
from rl_operator.tools.agent_tool import AgentTool, input_schema
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.skill import skill_text
from rl_operator.tools.toolset import TOOLS

if TYPE_CHECKING:
    from rl_operator.tools.serving.caller_sessions import Sessions

app = typer.Typer(
    help="Tools for agents: draft, try, start and follow runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer only the tools that change nothing.")]


@app.command("list")
def list_tools(*, read_only: ReadOnly = False, output: OutputFormat = OutputKind.TEXT) -> None:
    """List the tools; -o json with what each takes."""
    offered = _offered(read_only=read_only)
    if output in (OutputKind.JSON, OutputKind.YAML):
        items = [
            {
                "name": tool.name,
                "effect": tool.effect,
                "description": tool.description,
                "parameters": input_schema(tool),
            }
            for tool in offered
        ]
        print_object({"tools": items}, output)
        return
    rows = [[tool.name, tool.effect, tool.title, ", ".join(tool.arguments.model_fields)] for tool in offered]
    typer.echo(cut_columns(["NAME", "EFFECT", "TITLE", "PARAMETERS"], rows))


@app.command("skill")
def print_skill() -> None:
    """Print how agents should use the tools: a SKILL.md."""
    typer.echo(skill_text(), nl=False)


@app.command("mcp")
@on_target
def serve_mcp(
    *,
    agent: Annotated[str, typer.Option("--agent", help="Which of your agents this is: it finds its own drafts.")] = "",
    read_only: ReadOnly = False,
    scope: Scope,
) -> None:
    """Serve the tools over MCP to the program that started this one, on stdin and stdout."""
    _require_extra()
    from rl_operator.tools.serving.mcp_server import serve_stdio

    target = scope.target
    tool_context = CallContext(target, scope.namespace, agent=agent, variables=os.environ)
    serve_stdio(_offered(read_only=read_only), tool_context)


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
    ui: Annotated[bool, typer.Option("--ui", help="Serve the page for browsers, too, at /ui.")] = False,
    local: Local = False,
    kubeconfig: Kubeconfig = "",
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
    if ui and importlib.util.find_spec("jinja2") is None:
        raise RefusedError("the package jinja2 is not installed: pip install 'rl-operator[ui]' brings it")
    from rl_operator.tools.serving.call_pool import Calls
    from rl_operator.tools.serving.gateway import build_app
    from rl_operator.tools.serving.http_server import address_of, listen, serve

    target = opened_target(local=local, kubeconfig=kubeconfig, context=context, state_dir=state_dir)
    sessions, calls = _sessions(target, namespace, token_file, state_dir), Calls()
    offered, hosts = _offered(read_only=read_only), allow_host or ()
    page = None
    if ui:
        from rl_operator.ui.serving.page_gate import page_at

        may_change = not all(tool.reads_only for tool in offered)
        page = page_at(sessions, calls, hosts, pinned=bool(namespace), may_change=may_change)
    app = build_app(offered, sessions, calls, hosts=hosts, pinned=bool(namespace), page=page)
    listener = listen(host, port)
    typer.echo(f"Serving tools of {target.label} at {address_of(listener)}, MCP at {address_of(listener)}/mcp")
    if ui:
        typer.echo(f"The page is at {address_of(listener)}/ui")
    serve(app, listener, calls)


def _sessions(target: Target, namespace: str, token_file: Path | None, state_dir: Path | None) -> "Sessions":
    from rl_operator.targets.cluster_target import ClusterTarget
    from rl_operator.tools.serving.caller_sessions import ClusterSessions, LocalSessions, make_token, read_tokens

    if isinstance(target, ClusterTarget):
        if token_file:
            raise RefusedError("--token-file is for --local: in front of a cluster callers bring Kubernetes tokens")
        return ClusterSessions(target, lambda acting: CallContext(acting, namespace or acting.namespace))
    if token_file is None:
        token_file = Layout(state_dir.expanduser().absolute() if state_dir else default_state_folder()).tools_token
        make_token(token_file)
        typer.echo(f"The token is in {token_file}")
    context = CallContext(target, namespace or target.namespace, variables=os.environ)
    return LocalSessions(context, read_tokens(token_file, target.note))


def _offered(*, read_only: bool) -> list[AgentTool]:
    return [tool for tool in TOOLS if tool.reads_only or not read_only]


def _require_extra() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise RefusedError("the package mcp is not installed: pip install 'rl-operator[tools]' brings it")
