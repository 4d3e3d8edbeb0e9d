"""A process that serves the small toolset over stdio: python -m tests.unit.rl_operator.tools.stdio_program FOLDER."""

import sys
from pathlib import Path

from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.backends.local import LocalBackEnd
from rl_operator.tools.desk import Desk
from rl_operator.tools.mcp_server import serve_stdio

serve_stdio(TOOLS, Desk(LocalBackEnd.open(Path(sys.argv[1]), print, asked=True), "default"))
