"""Where the programs that this package starts are installed, and what is installed with them."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rl_operator.operator_errors import OperatorError

INSTALL_COMMAND: Final = "pip install 'tinker-atropos[tinker-service]'"
INSTALL_HINT: Final = f"install it beside rlctl: {INSTALL_COMMAND}"


class ProgramMissingError(OperatorError):
    """The message says what to install."""

    def __init__(self, program: str) -> None:
        super().__init__(f"the program {program!r} is not there; {INSTALL_HINT}")


def find_program(program: str, path: str | None) -> str:
    """Next to this Python first: both packages are installed together there. Then on `path` (as in PATH).

    Raises ProgramMissingError.
    """
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.is_file() else shutil.which(program, path=path)
    if found is None:
        raise ProgramMissingError(program)
    return found


def has_torch(program: str) -> bool:
    """Whether torch is installed with that program, which need not be where we are; not imported, which takes seconds.

    True if it cannot be checked.
    """
    folder = Path(program).resolve().parent
    if folder == Path(sys.executable).parent.resolve():
        return find_spec("torch") is not None
    python = python_beside(program)
    if python is None:
        return True
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", look], check=False, stderr=subprocess.DEVNULL).returncode != 1  # noqa: S603 -- the program's own Python


def python_beside(program: str) -> Path | None:
    """The interpreter that a program is installed with."""
    folder = Path(program).resolve().parent
    for name in ("python", "python3"):
        if (found := folder / name).is_file():
            return found
    return None
