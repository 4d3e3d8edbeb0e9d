"""`rlctl environments [NAME]`, and the commands below it: an argument that is none of their names is a NAME."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from rl_operator.api.catalog import Catalog, CatalogEnvironment
from rl_operator.api.runtime import Runtime
from rl_operator.cli.options import Namespace, OutputFormat, OutputKind, RuntimeName, Scope, StateDir, on_target
from rl_operator.cli.printing import columns, cut_columns, print_object, program
from rl_operator.cli.views.installing import installing
from rl_operator.documents.yaml_text import flow
from rl_operator.local.interpreters.interpreter import Interpreter, Marker
from rl_operator.local.interpreters.interpreters import LIBRARY, in_use
from rl_operator.local.own_environments import requirements_of
from rl_operator.operator_errors import ForbiddenError, RefusedError
from rl_operator.status.text.figure_text import duration
from rl_operator.targets.inputs.file_inputs import choose_runtime, known_environment
from rl_operator.targets.inputs.parameters import SettableField, fields_of, plain_run
from rl_operator.targets.inputs.run_file import with_file
from rl_operator.targets.local_target import LocalTarget
from rl_operator.targets.target import Target
from rl_operator.targets.target_choice import say

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
        interpreter, changed = _install_requirements(target, what, packages or [], namespace or target.namespace)
        base = "tinker-atropos"
    else:
        interpreter, changed = _install_library(target, what, packages or [])
        base = f"tinker-atropos[{what}]"
    told = interpreter.marker
    assert told is not None, "it was installed"
    installs = ", ".join([base, *told.packages])
    if changed:
        typer.echo(f"{interpreter.name} is installed in {duration(told.seconds)}, {_size(told)}: {installs}")
    else:
        typer.echo(f"{interpreter.name} is installed already, nothing to do: {installs}")
    if what == LIBRARY:
        typer.echo(f"What it brings: {program()} environments {what}{target.flags}")
        typer.echo(f"Check one: {interpreter.program(told)} check {what}/NAME")


def installed(*, local: Local = True, state_dir: StateDir = None, output: OutputFormat = OutputKind.TEXT) -> None:
    """List the interpreters of the state folder: what is in each, and its size."""
    target = _local_target(local=local, state_dir=state_dir)
    every = target.interpreters.all().values()
    found = [(each, told) for each in every if (told := each.marker) is not None]
    if output in (OutputKind.JSON, OutputKind.YAML):
        items = [
            {
                "name": each.name,
                "program": str(each.program(told)),
                "tinkerAtropos": told.tinker_atropos,
                "packages": list(told.packages),
                "bytes": told.size,
                "seconds": told.seconds,
            }
            for each, told in found
        ]
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


def _install_library(target: LocalTarget, family: str, packages: list[str]) -> tuple[Interpreter, bool]:
    if family != LIBRARY:
        raise RefusedError(f"there is no library {family!r} with an interpreter of its own (there is: {LIBRARY})")
    with installing(" ".join([family, *packages])) as progress:
        changed = target.interpreters.install_library(packages, progress)
    return target.interpreters.named(family), changed


def _install_requirements(
    target: LocalTarget, environment: str, packages: list[str], namespace: str
) -> tuple[Interpreter, bool]:
    if packages:
        raise RefusedError(f"{environment} names its packages in the requirements.txt beside it: add them there")
    run = with_file(plain_run(environment, target.usual_runtime, namespace), Path.cwd(), target)
    if (text := requirements_of(run, target.read)) is None:
        raise RefusedError(f"there is no requirements.txt beside {environment}, so it runs in our own interpreter")
    with installing(f"the requirements.txt of {environment}") as progress:
        changed = target.interpreters.install_requirements(text, progress)
    return target.interpreters.of_requirements(text), changed


def _local_target(*, local: bool, state_dir: StateDir) -> LocalTarget:  # noqa: ARG001 -- the option may be given, as in all commands
    return LocalTarget.open(state_dir, say, asked=True)


def _size(told: Marker) -> str:
    return f"{told.size / 1e6:.0f} MB"


@on_target
def environments(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Show what you may set of this one.")] = "",
    *,
    runtime: RuntimeName = "",
    scope: Scope,
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """List environments; with NAME, what a run may set of one: type, default, limits and what is locked.

    NAME is a bundled one, own/NAME, or with --local a file; a library's name lists its environments. -o wide says what
    each field means, -o json everything.
    """
    target = scope.target
    chosen, place = choose_runtime(target, runtime), scope.namespace
    if members := _members(target.catalog(chosen) if name else None, name.rstrip("/")):
        _show_family(members, target, output)
    elif name:
        _show_one(known_environment(target, name, chosen, place), chosen, target, output)
    else:
        _show_all(chosen, target, place, output)


def _members(catalog: Catalog | None, family: str) -> list[CatalogEnvironment]:
    """The environments of a library; none if it does not name a library."""
    if catalog is None or family not in {each.name for each in catalog.families}:
        return []
    return [each for each in catalog.environments if each.name.startswith(f"{family}/")]


def _show_family(members: Sequence[CatalogEnvironment], target: Target, output: OutputKind) -> None:
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object({"target": target.label, "environments": [each.to_wire() for each in members]}, output)
        return
    table = columns if output is OutputKind.WIDE else cut_columns
    typer.echo(table(["NAME", "DESCRIPTION"], [[each.name, each.description] for each in members]))
    typer.echo(f"\n{len(members)}; what you may set: {program()} environments NAME{target.flags}")


def _show_all(runtime: Runtime, target: Target, namespace: str, output: OutputKind) -> None:
    catalog = target.catalog(runtime)
    try:
        own = target.environments(namespace)
    except ForbiddenError as error:
        target.note(f"own environments are not listed: {error}")
        own = []
    bundled = catalog.outline if catalog else ()
    if output in (OutputKind.JSON, OutputKind.YAML):
        head = {"target": target.label, "runtime": runtime.metadata.name, "namespace": namespace}
        warnings = list(catalog.warnings) if catalog else []
        complete = [catalog.completed(each).to_wire() for each in catalog.nameable] if catalog else []
        found = {"environments": complete, "own": [each.to_wire() for each in own]}
        absent = [each.to_wire() for each in catalog.absent] if catalog else []
        print_object({**head, **found, "absent": absent, "warnings": warnings}, output)
        return
    rows = [[each.name, "bundled", each.description] for each in bundled]
    rows += [
        [f"own/{each.metadata.name}", *(each.status.fault or ("Ready", each.status.description or ""))] for each in own
    ]
    rows += [[f"{each.name}/NAME", "absent", each.hint] for each in (catalog.absent if catalog else ())]
    table = columns if output is OutputKind.WIDE else cut_columns
    typer.echo(table(["NAME", "STATE", "DESCRIPTION"], rows))
    if catalog is None:
        typer.echo(f"The catalog of runtime {runtime.metadata.name} is not there yet: its image is being read.")
    for warning in catalog.warnings if catalog else ():
        typer.echo(f"warning: {warning}", err=True)
    hint = f"{program()} environments NAME{target.flags}"
    typer.echo(f"\n{len(rows)} for runtime {runtime.metadata.name} in {target.label}; what you may set: {hint}")


def _show_one(environment: CatalogEnvironment, runtime: Runtime, target: Target, output: OutputKind) -> None:
    fields = fields_of(environment, runtime)
    if output in (OutputKind.JSON, OutputKind.YAML):
        head = environment.model_dump(mode="json", by_alias=True, exclude={"fields"})
        where = {"target": target.label, "runtime": runtime.metadata.name}
        print_object({**where, **head, "fields": [field.to_wire() for field in fields]}, output)
        return
    typer.echo(f"{environment.name}: {environment.description}")
    if environment.about_items:
        typer.echo(environment.about_items)
    typer.echo(f"What a run may set with runtime {runtime.metadata.name} of {target.label}:\n")
    for section in ("config", "trainer"):
        typer.echo(_table(section, [field for field in fields if field.section == section], output) + "\n")
    flags = f"{environment.name} --runtime {runtime.metadata.name}{target.flags}"
    typer.echo(f"What each means: {program()} environments {flags} -o wide")
    typer.echo(f"A file to start from: {program()} init {flags} > run.yaml")


def _table(section: str, fields: Sequence[SettableField], output: OutputKind) -> str:
    header = [f"SPEC.{section.upper()}", "TYPE", "DEFAULT", "ALLOWED"]
    rows = [[field.name, field.type, *_limits(field)] for field in fields]
    if output is not OutputKind.WIDE:
        return cut_columns(header, rows)
    return columns(
        [*header, "DESCRIPTION"], [[*row, field.field.description] for row, field in zip(rows, fields, strict=True)]
    )


def _limits(field: SettableField) -> tuple[str, str]:
    """Default and what is allowed."""
    return ("", f"locked to {flow(field.default)}") if field.locked else (flow(field.default), field.allowed)


DEFAULT: Final = "show"
HELP: Final = ("-h", "--help")


class DefaultsToShow(TyperGroup):
    """A group that is a command, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_command(args))

    def with_command(self, arguments: list[str]) -> list[str]:
        """The arguments, with the command that they leave out."""
        own = arguments[:1] and (arguments[0] in self.commands or arguments[0] in HELP)
        return arguments if own else [DEFAULT, *arguments]


app = typer.Typer(
    cls=DefaultsToShow,
    help="List environments, or what may be set of one; install some.",
    rich_markup_mode=None,
    context_settings={"help_option_names": [*HELP]},
)
app.command(DEFAULT, short_help="The default: environments [NAME].")(environments)
app.command("install", short_help="Install a library in an interpreter of its own.")(install)
app.command("installed", short_help="List the interpreters that were installed.")(installed)
app.command("uninstall", short_help="Remove one.")(uninstall)
