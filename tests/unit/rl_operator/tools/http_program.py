"""A process that serves the small toolset over HTTP: python -m tests.unit.rl_operator.tools.http_program FOLDER."""

import sys
from pathlib import Path

from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.backends.local import LocalBackEnd
from rl_operator.tools.access import make_token, read_tokens
from rl_operator.tools.callers import LocalCallers
from rl_operator.tools.calls import Calls
from rl_operator.tools.desk import Desk
from rl_operator.tools.gateway import build_app
from rl_operator.tools.serving import address_of, listen, serve

folder = Path(sys.argv[1])
make_token(folder / "token")
desk = Desk(LocalBackEnd.open(folder, print, asked=True), "default")
callers, calls, listener = LocalCallers(desk, read_tokens(folder / "token", print)), Calls(), listen("127.0.0.1", 0)
offered = [tool for tool in TOOLS if tool.reads_only or "--read-only" not in sys.argv]
seconds = 2.0 if "--hurried" in sys.argv else 28.0
app = build_app(
    offered, callers, calls, hosts=["Tools.Example.com"], pinned="--pinned" in sys.argv, answer_seconds=seconds
)
print(address_of(listener), flush=True)
serve(app, listener, calls)
