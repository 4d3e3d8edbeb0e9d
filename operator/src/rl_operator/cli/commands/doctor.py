"""`rlctl doctor`: what is missing, and how to get it."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from rl_contract.env_vars import TINKER_API_KEY, WANDB_API_KEY
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import Context, StateDir
from rl_operator.local.state.state_store import unwritable
from rl_operator.operator_errors import ForbiddenError, OperatorError
from rl_operator.programs import INSTALL_HINT, TINKER_SERVICE, ProgramMissingError, find_program
from rl_operator.targets.local_target import LocalTarget
from rl_operator.targets.target_choice import choose_target, cluster_is_configured, say

STATE_FOLDER_HINT: Final = "choose another one with RL_STATE_DIR"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that rlctl may need. `hint` says how to get it when it is missing."""

    name: str
    found: bool
    detail: str
    hint: str = ""
    needed: bool = True


def doctor(*, context: Context = "", state_dir: StateDir = None) -> None:
    """Check what this machine has for local runs, and whether a cluster responds."""
    checks = [*_local_checks(state_dir), *_cluster_checks(context)]
    for check in checks:
        mark = "ok" if check.found else "missing" if check.needed else "-"
        typer.echo(f"{mark:<8} {check.name:<16} {check.detail}{'' if check.found else f' -> {check.hint}'}")
    raise typer.Exit(
        CommandExit.OK if all(check.found or not check.needed for check in checks) else CommandExit.REFUSED
    )


def _local_checks(state_dir: Path | None) -> Iterator[Requirement]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Requirement("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    for program, needed in (("tinker-atropos", True), (TINKER_SERVICE, False)):
        try:
            yield Requirement(program, True, find_program(program, os.environ.get("PATH")))
        except ProgramMissingError:
            what = "not beside this Python, not on PATH" if needed else "for the runtime tiny"
            yield Requirement(program, False, what, INSTALL_HINT, needed=needed)
    for key, what in ((TINKER_API_KEY, "for the runtime default"), (WANDB_API_KEY, "for its curves on W&B")):
        yield Requirement(key, key in os.environ, what, f"export {key}=…", needed=False)
    try:
        target = LocalTarget.open(state_dir, say, asked=True)
        count, why = len(list(target.runs(None, ""))), unwritable(target.layout.root)
        what, hint = (why, STATE_FOLDER_HINT) if why else (f"{target.label}, {count} runs", "")
        yield Requirement("state folder", why is None, what, hint)
    except OperatorError as error:
        yield Requirement("state folder", False, str(error), STATE_FOLDER_HINT)


def _cluster_checks(context: str) -> Iterator[Requirement]:
    if not (context or cluster_is_configured(os.environ)):
        hint = "set KUBECONFIG to use a cluster"
        yield Requirement("cluster", False, "no kubeconfig: rlctl works on this machine", hint, needed=False)
        return
    try:
        target = choose_target(local=False, context=context, state_dir=None)
        runtimes = ", ".join(sorted(target.runtimes())) or "none yet"
        yield Requirement("cluster", True, f"{target.label}, runtimes: {runtimes}")
    except ForbiddenError as error:
        yield Requirement(
            "cluster", False, str(error), "ask for that right; the chart and examples/operator.yaml give it"
        )
    except OperatorError as error:
        yield Requirement("cluster", False, str(error), "check the kubeconfig, and apply crds/")
