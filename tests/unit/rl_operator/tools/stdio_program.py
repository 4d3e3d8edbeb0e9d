"""A process that serves the small toolset over stdio, and shows ten times a second that a call goes on.

python -m tests.unit.rl_operator.tools.stdio_program FOLDER
"""

import sys
from pathlib import Path

from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.mcp_server import serve_stdio

serve_stdio(TOOLS, CallContext(LocalTarget.open(Path(sys.argv[1]), print, asked=True), "default"), progress_seconds=0.1)
