"""`rlctl environments install`, `installed`, `uninstall`: interpreters for environments with packages of their own."""

from pathlib import Path
from typing import Annotated

import typer

from rl_operator.cli.options import Namespace, OutputFormat, OutputKind, StateDir, opened_target
from rl_operator.cli.printing import columns, print_object, program
from rl_operator.cli.views.installing import installing
from rl_operator.local.interpreters.interpreter import Interpreter, Marker
from rl_operator.local.interpreters.interpreters import LIBRARY, in_use
from rl_operator.local.own_environments import requirements_of
from rl_operator.operator_errors import RefusedError
from rl_operator.status.text.figure_text import duration
from rl_operator.targets.inputs.parameters import plain_run
from rl_operator.targets.inputs.run_file import with_file
from rl_operator.targets.local_target import LocalTarget

Packages = Annotated[
    list[str] | None, typer.Argument(metavar="[PACKAGE]...", help="More packages: NAME, NAME==VERSION or ./FOLDER.")
]
Wanted = Annotated[
    str, typer.Argument(metavar="WHAT", help="A library (verifiers), or an environment of yours: FILE.py, own/NAME.")
]
Local = Annotated[bool, typer.Option("--local", help="Has no effect: only local mode has interpreters.", hidden=True)]


def install(
    what: Wanted,
    packages: Packages = None,
    *,
    local: Local = True,
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Install a library of environments in an interpreter of its own, once; with more packages, they are added.

    For an environment of yours: what the requirements.txt beside it lists. A folder is installed as it is: what you
    edit there takes effect with the next attempt.
    """
    target = _local_target(local=local, state_dir=state_dir)
    if what.endswith(".py") or what.startswith("own/"):
        _install_requirements(target, what, packages or [], namespace or target.namespace)
    else:
        _install_library(target, what, packages or [])


def installed(*, local: Local = True, state_dir: StateDir = None, output: OutputFormat = OutputKind.TEXT) -> None:
    """List the interpreters of the state folder: what is in each, and its size."""
    target = _local_target(local=local, state_dir=state_dir)
    every = target.interpreters.all().values()
    found = [(each, told) for each in every if (told := each.marker) is not None]
    if output in (OutputKind.JSON, OutputKind.YAML):
        items = [{"name": each.name, "program": str(each.program(told)), **_as_told(told)} for each, told in found]
        print_object({"target": target.label, "interpreters": items}, output)
        return
    rows = [[each.name, _size(told), told.tinker_atropos, ", ".join(told.packages) or "-"] for each, told in found]
    typer.echo(columns(["NAME", "SIZE", "TINKER-ATROPOS", "PACKAGES"], rows))


def uninstall(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `installed` lists it.")],
    *,
    local: Local = True,
    state_dir: StateDir = None,
) -> None:
    """Remove an interpreter. Runs keep their weights and checkpoints; to train on they need it again."""
    target = _local_target(local=local, state_dir=state_dir)
    found = target.interpreters.all()
    if name not in found:
        known = ", ".join(found) or "nothing"
        raise RefusedError(f"nothing named {name!r} is installed in {target.label} (there is: {known})")
    interpreter = found[name]
    with interpreter.alone() as alone:
        if not alone:
            raise RefusedError(f"{name} is being installed by another process: wait for it, or end that")
        if any(interpreter.folder in build.parents for build in in_use(target.layout)):
            raise RefusedError(f"a run trains with {name} now: stop it first ({program()} list --local)")
        interpreter.remove()
    typer.echo(f"{name} is removed ({target.label})")


def _install_library(target: LocalTarget, family: str, packages: list[str]) -> None:
    if family != LIBRARY:
        raise RefusedError(f"there is no library {family!r} with an interpreter of its own (there is: {LIBRARY})")
    interpreter = target.interpreters.named(family)
    with installing(" ".join([family, *packages])) as progress:
        changed = target.interpreters.install_library(packages, progress)
    told = interpreter.marker
    assert told is not None, "it was installed"
    _say(interpreter, told, f"tinker-atropos[{family}]", changed=changed)
    typer.echo(f"What it brings: {program()} environments {family}{target.flags}")
    typer.echo(f"Check one: {interpreter.program(told)} check {family}/NAME")


def _install_requirements(target: LocalTarget, environment: str, packages: list[str], namespace: str) -> None:
    if packages:
        raise RefusedError(f"{environment} names its packages in the requirements.txt beside it: add them there")
    text = requirements_of(
        with_file(plain_run(environment, target.usual_runtime, namespace), Path.cwd(), target), target.read
    )
    if text is None:
        raise RefusedError(f"there is no requirements.txt beside {environment}, so it runs in our own interpreter")
    with installing(f"the requirements.txt of {environment}") as progress:
        changed = target.interpreters.install_requirements(text, progress)
    interpreter = target.interpreters.of_requirements(text)
    told = interpreter.marker
    assert told is not None, "it was installed"
    _say(interpreter, told, "tinker-atropos", changed=changed)


def _say(interpreter: Interpreter, told: Marker, base: str, *, changed: bool) -> None:
    what = ", ".join([base, *told.packages])
    if changed:
        typer.echo(f"{interpreter.name} is installed in {duration(told.seconds)}, {_size(told)}: {what}")
    else:
        typer.echo(f"{interpreter.name} is installed already, nothing to do: {what}")


def _local_target(*, local: bool, state_dir: StateDir) -> LocalTarget:  # noqa: ARG001 -- the option may be given, as in all commands

    target = opened_target(local=True, kubeconfig="", context="", state_dir=state_dir)
    assert isinstance(target, LocalTarget)
    return target


def _as_told(told: Marker) -> dict[str, object]:
    return {
        "tinkerAtropos": told.tinker_atropos,
        "packages": list(told.packages),
        "bytes": told.size,
        "seconds": told.seconds,
    }


def _size(told: Marker) -> str:
    return f"{told.size / 1e6:.0f} MB"
