"""Folders with tasksets of verifiers: the example's, and those that only tests play."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = ROOT / "examples" / "verifiers"
RL_TASKSETS: Final = os.pathsep.join(map(str, (EXAMPLE, ROOT / "tests" / "data" / "environments" / "verifiers")))
"""As the variable has them."""
