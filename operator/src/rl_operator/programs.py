"""Where the programs that this package starts are installed."""

import shutil
import sys
from pathlib import Path
from typing import Final

from rl_operator.operator_errors import RefusedError

INSTALL_HINT: Final = "install it beside rlctl: pip install tinker-atropos tinker-service"
TINKER_SERVICE: Final = "tinker-service"
"""The program that computes a model on this machine."""


class ProgramMissingError(RefusedError):
    """The message says what to install."""

    def __init__(self, program: str) -> None:
        super().__init__(f"the program {program!r} is not there; {INSTALL_HINT}")


def find_program(program: str, path: str | None) -> str:
    """Next to this Python first: all packages are installed together there. Then on `path` (as in PATH).

    Raises ProgramMissingError.
    """
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.is_file() else shutil.which(program, path=path)
    if found is None:
        raise ProgramMissingError(program)
    return found
