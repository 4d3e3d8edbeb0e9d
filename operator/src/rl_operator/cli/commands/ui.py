"""`rlctl ui`: the page in a browser, for this machine's user."""

import contextlib
import importlib.util
import secrets
import webbrowser
from typing import Annotated

import typer

from rl_operator.cli.options import Scope, on_target
from rl_operator.operator_errors import RefusedError


@on_target
def ui(
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    scope: Scope,
) -> None:
    """Show runs, curves and rollouts in a browser, until Ctrl-C.

    The page is served on loopback, to who has the address that is printed. On a cluster it acts with your own rights.
    """
    if importlib.util.find_spec("jinja2") is None or importlib.util.find_spec("starlette") is None:
        raise RefusedError("the page needs the extra `ui`: pip install 'rl-operator[ui]'")
    from rl_operator.ui.serving.local_page import listen, opened_page, serve

    listener = listen(port)
    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={token}"
    typer.echo(f"Runs of {scope.target.label}: {address}")
    with opened_page(webbrowser.open, address) if browser else contextlib.nullcontext():
        serve(scope.target, scope.asked_namespace or None, listener, token)
