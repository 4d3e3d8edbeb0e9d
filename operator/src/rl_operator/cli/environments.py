"""`rlctl environments`: what can be trained, and what may be set."""

from typing import TYPE_CHECKING, Annotated

import typer

from rl_operator.cli.backend import BackEnd, choose_backend
from rl_operator.cli.exits import RefusedError
from rl_operator.cli.options import Context, Local, Output, OutputFormat, StateDir
from rl_operator.cli.printing import columns, print_object, program

if TYPE_CHECKING:
    from rl_operator.api.catalogue import CatalogueEnvironment


def environments(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Show the fields of this one.")] = "",
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """List the environments, or the fields of one."""
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    catalogue = backend.catalogue()
    if name and name not in catalogue.by_name:
        raise RefusedError(
            f"there is no environment {name!r} in {backend.label}; there are: {', '.join(catalogue.by_name)}"
        )
    chosen = [catalogue.by_name[name]] if name else list(catalogue.environments)
    if output in (Output.JSON, Output.YAML):
        items = [each.to_wire() for each in chosen]
        print_object(items[0] if name else {"backEnd": backend.label, "environments": items}, output)
        return
    typer.echo(_fields(chosen[0], backend) if name else _overview(chosen, backend))


def _overview(chosen: "list[CatalogueEnvironment]", backend: BackEnd) -> str:
    table = columns(["NAME", "DESCRIPTION"], [[each.name, each.description] for each in chosen])
    return (
        f"{table}\n\n{len(chosen)} in {backend.label}; the fields of one: {program()} environments NAME{backend.flags}"
    )


def _fields(environment: "CatalogueEnvironment", backend: BackEnd) -> str:
    rows = [[field.name, field.type, str(field.default), field.description] for field in environment.fields]
    table = columns(["FIELD", "TYPE", "DEFAULT", "DESCRIPTION"], rows)
    return f"{environment.name}: {environment.description} ({backend.label})\n\n{table}"
