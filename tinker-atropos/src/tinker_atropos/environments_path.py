"""The secret path below which a run's data ports serve environments in other pods.

A NetworkPolicy sees pods, not containers: beside an environment of ours, its pod may hold a server of a stranger
(OpenEnv), which reaches the same ports. Only who was told the path gets past the first segment of a URL:
`RL_API_URL=http://run.ns.svc:8000/PATH`. Whoever calls on loopback is of the run's own pod, and needs none.
"""

import ipaddress
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tinker_atropos.serving import json_response

REFUSAL: Final = "this port is for environments of the run, which were told the path to it; this request came from "


def below(path: str, app: ASGIApp) -> ASGIApp:
    """Serve `app` below `path` (`/SECRET`), and on loopback without it, too. An empty path leaves it as it is."""
    if not path:
        return app

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked: str = scope["path"]
            if asked.startswith(f"{path}/"):
                plain = asked.removeprefix(path)
                scope = {**scope, "path": plain, "raw_path": plain.encode()}
            elif not is_loopback(scope):
                await json_response({"detail": f"{REFUSAL}{_peer(scope)}"}, 403)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


def is_loopback(scope: Scope) -> bool:
    """By the connection's own address, not by a header."""
    return bool(scope.get("client")) and ipaddress.ip_address(scope["client"][0]).is_loopback


def _peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "an unknown address"
