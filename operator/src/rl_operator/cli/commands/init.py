"""`rlctl init`: a run file to start from."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_operator.cli.options import RuntimeName, Scope, on_target
from rl_operator.errors import RefusedError

if TYPE_CHECKING:
    from rl_operator.api.catalog import CatalogEnvironment
    from rl_operator.api.runtime import Runtime
    from rl_operator.cli.views.template import Accepts


@on_target
def init(
    environment: Annotated[str, typer.Argument(metavar="[ENV]", help="A bundled one, own/NAME, or ./file.py.")] = "",
    *,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE.py", help="Bring this file and what it imports as own/NAME.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run; default: the environment's.")] = "",
    runtime: RuntimeName = "",
    scope: Scope,
) -> None:
    """Print a commented run file: rlctl init sort_digits > run.yaml

    rlctl init ./my_env.py --local writes a run of a file, for this machine; with --from ./my_env.py the file holds the
    ConfigMap, the RLEnvironment and the run, for a cluster and for this machine.
    """
    from rl_operator.cli.views.template import object_name, run_template
    from rl_operator.targets.inputs.environment_choice import choose_runtime, known_environment

    if bool(environment) == bool(source):
        raise RefusedError("give either an environment, like rlctl init sort_digits, or --from FILE.py")
    target = scope.target
    chosen = choose_runtime(target, runtime)
    run_name = name or object_name(source.name if source else environment.rpartition("/")[2])
    if source is not None:
        if not source.is_file():
            raise RefusedError(f"cannot read {source}: there is no such file")
        head, known = _own(source, run_name, chosen)
    else:
        head, known = "", known_environment(target, environment, chosen, scope.namespace)
    typer.echo(head + run_template(run_name, known, chosen, accepts_of(known, chosen)), nl=False)


def _own(source: Path, name: str, runtime: "Runtime") -> "tuple[str, CatalogEnvironment]":
    """The objects that ship the file, and the environment that they define. Raises RefusedError."""
    from rl_operator.api.names import OWN_PREFIX
    from rl_operator.api.run_inputs import choose_environment
    from rl_operator.cli.views.template import own_environment_template
    from rl_operator.discover import discover_files
    from rl_operator.local.own_environments import OwnEnvironments
    from rl_operator.targets.target_loop import run_sync

    own = OwnEnvironments(lambda *_: None, discover_files)
    found = run_sync(own.of_file(source.absolute(), "default"))
    known = choose_environment(f"{OWN_PREFIX}{name}", runtime, None, found).known
    if known is None:
        stalled = found.status.condition("Stalled")
        raise RefusedError(stalled.message if stalled else f"{source} cannot be read")
    files = run_sync(own.files(found))
    return own_environment_template(name, files or {}, source.name), known


def accepts_of(environment: "CatalogEnvironment", runtime: "Runtime") -> "Accepts":
    """Uses the check itself: whether these settings cause a refusal that a run without any would not get."""
    from rl_operator.api.run_inputs import ChosenEnvironment, RunInputs
    from rl_operator.check import check_run
    from rl_operator.documents.parse import parse_run
    from rl_operator.targets.inputs.parameters import plain_run

    inputs = RunInputs(runtime, ChosenEnvironment(known=environment))
    plain = plain_run(environment.name, runtime.metadata.name).to_wire()

    def sentences(settings: Mapping[str, Any]) -> set[str]:
        run = parse_run({**plain, "spec": {**plain["spec"], **settings}})
        return {refusal.sentence for refusal in check_run(run, inputs)}

    usual = sentences({})
    return lambda settings: sentences(settings) <= usual
