"""What must be installed on this machine before a run can train here."""

import os
from typing import Final

from rl_operator.programs import INSTALL_COMMAND, INSTALL_HINT, ProgramMissingError, find_program, has_torch
from rl_operator.targets.target import Missing

TRAINER_PROGRAM: Final = "tinker-atropos"


def missing_programs(runtime: str, *, computes: bool) -> tuple[Missing, ...]:
    """For a run of that runtime: the program of its containers, and torch if the model is computed here."""
    try:
        program = find_program(TRAINER_PROGRAM, os.environ.get("PATH"))
    except ProgramMissingError:
        why = "the processes of every run are started with it"
        return (Missing("program", TRAINER_PROGRAM, why, INSTALL_HINT, needed=True),)
    if not computes or has_torch(program):
        return ()
    why = f"runtime {runtime} computes its model on this machine with it"
    return (Missing("package", "torch", why, INSTALL_COMMAND, needed=True),)
