"""A process that serves the small toolset over HTTP: python -m tests.unit.rl_operator.tools.http_program FOLDER."""

import sys
from pathlib import Path

from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.caller_sessions import LocalSessions, make_token, read_tokens
from rl_operator.tools.serving.gateway import build_app
from rl_operator.tools.serving.http_server import HEAD_SECONDS, address_of, listen, serve

folder = Path(sys.argv[1])
make_token(folder / "token")
context = CallContext(LocalTarget.open(folder, print, asked=True), "default")
sessions, calls, listener = (
    LocalSessions(context, read_tokens(folder / "token", print)),
    Calls(),
    listen("127.0.0.1", 0),
)
offered = [tool for tool in TOOLS if tool.reads_only or "--read-only" not in sys.argv]
seconds = 2.0 if "--hurried" in sys.argv else 28.0
app = build_app(
    offered, sessions, calls, hosts=["Tools.Example.com"], pinned="--pinned" in sys.argv, answer_seconds=seconds
)
print(address_of(listener), flush=True)
serve(app, listener, calls, 0.5 if "--short-heads" in sys.argv else HEAD_SECONDS)
