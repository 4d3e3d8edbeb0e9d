"""`rlctl diff`: what applying a file would change."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from rl_operator.cli.exits import ExitCode
from rl_operator.cli.options import Output, OutputFormat, RunPath, Scope, on_target
from rl_operator.cli.printing import print_object
from rl_operator.targets.target import Manifest, Target

if TYPE_CHECKING:
    from rl_operator.api.refusal import Refusal
    from rl_operator.cli.views.changes import FieldChange
    from rl_operator.targets.inputs.run_file import RunFile


@dataclass(frozen=True)
class Difference:
    """`new`: there is no such run. `texts`: unified diffs of the config and of the objects that come with the run."""

    new: bool
    fields: "tuple[FieldChange, ...]"
    texts: tuple[str, ...]
    refusals: "tuple[Refusal, ...]"

    @property
    def exit_code(self) -> ExitCode:
        if self.refusals:
            return ExitCode.REFUSED
        return ExitCode.DIFFERENT if self.new or self.fields or self.texts else ExitCode.OK


@on_target
def diff(
    file: RunPath,
    *,
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Compare a run's file with the live run: its spec, its rendered config, and the objects in the same file.

    Exit code 0: no difference; 1: applying the file would change something; 2: it would be refused.
    """
    from rl_operator.targets.inputs.run_file import read_run_file

    target = scope.target
    given = read_run_file(file, target, scope.asked_namespace)
    found = compare(given, target)
    if output in (Output.JSON, Output.YAML):
        print_object(_to_wire(given, found, target), output)
    else:
        _print(given, found, target)
    raise typer.Exit(found.exit_code)


def compare(given: "RunFile", target: Target) -> Difference:
    """The run in the file compared with the live one."""
    from rl_operator.cli.views.changes import spec_changes
    from rl_operator.documents.parse import parse_run
    from rl_operator.targets.inputs.file_inputs import check_file

    live, beside = target.run(*given.run.key), tuple(_beside(given, target))
    if live is None:
        return Difference(new=True, fields=(), texts=beside, refusals=check_file(given, target)[0])
    fields = spec_changes(parse_run(live).to_wire()["spec"], given.run.to_wire()["spec"])
    if "startTime" in live.get("status", {}):  # what it was checked against no longer matters
        refusals = tuple(_frozen(change) for change in fields if change.frozen)
    else:
        refusals = check_file(given, target)[0]
    config = () if refusals else _config(given, live, target)
    return Difference(new=False, fields=fields, texts=(*config, *beside), refusals=refusals)


def _frozen(change: "FieldChange") -> "Refusal":
    from rl_operator.api.hints import FROZEN
    from rl_operator.api.refusal import Refusal

    return Refusal(code="FrozenField", field=change.field, hint=FROZEN)


def _config(given: "RunFile", live: Manifest, target: Target) -> Iterator[str]:
    """The config file that would be rendered now compared with the one that the run was started with."""
    from rl_operator.cli.views.changes import text_changes
    from rl_operator.render.container_template import CONFIG_KEY
    from rl_operator.targets.inputs.file_inputs import render_file
    from rl_operator.targets.inputs.run_file import with_uid

    name = live.get("status", {}).get("configMapName")
    config_map = target.read("ConfigMap", given.run.metadata.namespace, name) if name else None
    if config_map is not None:
        rendered = render_file(with_uid(given, live["metadata"]["uid"]), target)
        yield from text_changes(CONFIG_KEY, config_map["data"][CONFIG_KEY], rendered.config_map["data"][CONFIG_KEY])


def _beside(given: "RunFile", target: Target) -> Iterator[str]:
    """ConfigMaps file by file, RLEnvironments as YAML; a run does not change runtimes."""
    from rl_operator.api.names import RUNTIME_KIND
    from rl_operator.cli.views.changes import text_changes

    for document in given.beside:
        kind, metadata = document["kind"], document["metadata"]
        if kind == RUNTIME_KIND:
            continue
        live = target.read(kind, metadata["namespace"], metadata["name"])
        before, after = _texts(live), _texts(document)
        for name in sorted(before.keys() | after.keys()):
            yield from text_changes(f"{kind} {metadata['name']}: {name}", before.get(name, ""), after.get(name, ""))


def _texts(document: Manifest | None) -> dict[str, str]:
    from rl_operator.documents.parse import parse_environment
    from rl_operator.documents.yaml_text import write_yaml

    if document is None:
        return {}
    if document["kind"] == "ConfigMap":
        return dict(document.get("data", {}))
    return {"spec": write_yaml(parse_environment(document).to_wire()["spec"])}


def _to_wire(given: "RunFile", found: Difference, target: Target) -> dict[str, Any]:
    changes = [
        {"field": change.field, "before": change.before, "after": change.after, "frozen": change.frozen}
        for change in found.fields
    ]
    refusals = [{**refusal.to_wire(), "sentence": refusal.sentence} for refusal in found.refusals]
    head = {"target": target.label, "run": given.run.metadata.name, "new": found.new}
    return {**head, "changes": changes, "texts": list(found.texts), "refusals": refusals}


def _print(given: "RunFile", found: Difference, target: Target) -> None:
    name = given.run.metadata.name
    if found.new:
        typer.echo(f"{name} would be created ({target.label})")
    elif found.exit_code is ExitCode.OK:
        typer.echo(f"{name} is as the file says ({target.label})")
    else:
        typer.echo(f"{name} in {target.label}:")
    for change in found.fields:
        typer.echo(f"  {change.field}: {change.before} -> {change.after}")
    for line in found.texts:
        typer.echo(f"  {line}")
    for refusal in found.refusals:
        typer.echo(f"error: {refusal.code}: {refusal.sentence}", err=True)
