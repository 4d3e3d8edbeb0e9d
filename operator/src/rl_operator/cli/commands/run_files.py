"""`rlctl validate`, `render` and `diff`: what a run's file means, before it costs anything."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import typer

from rl_operator.api.environment import runs_apart
from rl_operator.api.hints import FROZEN
from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import RUNTIME_KIND
from rl_operator.api.refusal import Refusal
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import ModelFolder, OutputFormat, OutputKind, RunPath, Scope, on_target
from rl_operator.cli.printing import print_object
from rl_operator.documents.parse import DocumentError, parse_environment, parse_run
from rl_operator.documents.yaml_text import block, write_yaml
from rl_operator.operator_errors import ForbiddenError
from rl_operator.render.container_env_vars import share_env_vars
from rl_operator.render.container_template import CONFIG_KEY
from rl_operator.render.environment_pod import environment_pod
from rl_operator.render.frozen_texts import frozen_texts
from rl_operator.render.manifests import Rendered
from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.sandbox_pod import sandbox_pod
from rl_operator.targets.inputs.file_inputs import check_file, render_file
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs, read_run_file, with_uid
from rl_operator.targets.runs.spec_changes import FieldChange, spec_changes, text_changes
from rl_operator.targets.target import Target

UID_PLACEHOLDER = "00000"
"""The uid comes with the object; its first five characters are part of the names of pods and of the Service."""


@on_target
def render(file: RunPath, *, model: ModelFolder = None, scope: Scope, output: OutputFormat = OutputKind.TEXT) -> None:
    """Print every object that a run's file would become, in the order of creation; nothing is created.

    The uid comes with the object. Here it is 00000, also in the names and hashes that follow from it.
    """
    target = scope.target
    given = read_run_file(file, target, scope.asked_namespace, model)
    named = with_uid(given, UID_PLACEHOLDER)
    objects = objects_of(as_it_runs(named, target).run, render_file(named, target))
    if output is OutputKind.JSON:
        print_object({"apiVersion": "v1", "kind": "List", "items": objects}, output)
        return
    if output is not OutputKind.YAML:
        typer.echo(f"# {len(objects)} objects of run {given.run.metadata.name} in {target.label}")
    for manifest in objects:
        typer.echo("---")
        if manifest["kind"] == "ConfigMap" and output is not OutputKind.YAML:
            _print_config_map(manifest)
        else:
            print_object(manifest, OutputKind.YAML)


def objects_of(run: TrainingRun, rendered: Rendered) -> list[Manifest]:
    """What the first attempt creates, in this order; of sandboxes, which are all alike, the first. Environment pods
    follow once the run's pod has an IP.
    """
    apart, templates = runs_apart(run.spec.environment), rendered.templates
    slots = range(0 if apart else 1, run.spec.environment_replicas)
    return [
        *rendered.config_maps,
        *(templates.network if slots else ()),
        pod_of_attempt(templates.pod, 1, exposed=bool(slots), share=share_env_vars(run, 0)),
        *(environment_pod(templates.environment, 1, slot, 0, share=share_env_vars(run, slot)) for slot in slots),
        *templates.sandbox_network,
        *([sandbox_pod(templates.sandbox, 1, 0, 0)] if templates.sandbox else ()),
    ]


def _print_config_map(config_map: Manifest) -> None:
    """Multi-line texts as they are; templates are left to -o yaml: the objects made from them follow."""
    metadata = config_map["metadata"]
    typer.echo(f"# ConfigMap {metadata['namespace']}/{metadata['name']}")
    for name, text in config_map["data"].items():
        template = name.endswith(".json")
        typer.echo(f"# {name}: {len(text)} characters\n" if template else block(name, text, indent=0), nl=False)


@on_target
def validate(file: RunPath, *, model: ModelFolder = None, scope: Scope, output: OutputFormat = OutputKind.TEXT) -> None:
    """Check a run's file against its runtime and environment; nothing is created.

    A ConfigMap, an RLEnvironment or an RLRuntime beside the run in the file counts as if it were applied.
    """
    target = scope.target
    pending: tuple[str, str] | None = None
    refusals: tuple[Refusal, ...]
    try:
        given = read_run_file(file, target, scope.asked_namespace, model)
        refusals, pending = check_file(given, target)
        run = given.run
        accepted = f"{file}: run {run.metadata.name} is accepted by runtime {run.spec.runtime} of {target.label}"
    except DocumentError as error:
        refusals, accepted = error.refusals, ""
    if output in (OutputKind.JSON, OutputKind.YAML):
        waits = {"waits": {"reason": pending[0], "message": pending[1]}} if pending else {}
        found = [{**refusal.to_wire(), "sentence": refusal.sentence} for refusal in refusals]
        print_object({"accepted": not refusals, "refusals": found, **waits}, output)
    elif refusals:
        for refusal in refusals:
            typer.echo(f"error: {refusal.code}: {refusal.sentence}", err=True)
    else:
        typer.echo(f"{accepted}\n  {pending[1]}" if pending else accepted)
    raise typer.Exit(CommandExit.REFUSED if refusals else CommandExit.OK)


@dataclass(frozen=True)
class Difference:
    """`new`: there is no such run. `texts`: unified diffs of the config and of the objects that come with the run."""

    new: bool
    fields: tuple[FieldChange, ...]
    texts: tuple[str, ...]
    refusals: tuple[Refusal, ...]

    @property
    def exit_code(self) -> CommandExit:
        if self.refusals:
            return CommandExit.REFUSED
        return CommandExit.DIFFERENT if self.new or self.fields or self.texts else CommandExit.OK


@on_target
def diff(file: RunPath, *, scope: Scope, output: OutputFormat = OutputKind.TEXT) -> None:
    """Compare a run's file with the live run: its spec, its rendered config, and the objects in the same file.

    Exit code 0: no difference; 1: applying the file would change something; 2: it would be refused.
    """
    target = scope.target
    given = read_run_file(file, target, scope.asked_namespace)
    found = compare(given, target)
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object(_to_wire(given, found, target), output)
    else:
        _print(given, found, target)
    raise typer.Exit(found.exit_code)


def compare(given: RunFile, target: Target) -> Difference:
    live, beside = target.run(*given.run.key), tuple(_beside(given, target))
    if live is None:
        return Difference(new=True, fields=(), texts=beside, refusals=check_file(given, target)[0])
    fields = spec_changes(parse_run(live).to_wire()["spec"], given.run.to_wire()["spec"])
    if "startTime" in live.get("status", {}):  # what it was checked against no longer matters
        frozen = (change.field for change in fields if change.frozen)
        refusals = tuple(Refusal(code="FrozenField", field=field, hint=FROZEN) for field in frozen)
    else:
        refusals = check_file(given, target)[0]
    config = () if refusals else _config(given, live, target)
    return Difference(new=False, fields=fields, texts=(*config, *beside), refusals=refusals)


def _config(given: RunFile, live: Manifest, target: Target) -> Iterator[str]:
    """The config file that would be rendered now compared with the one that the run was started with."""
    name = live.get("status", {}).get("configMapName")
    try:
        config_map = target.read("ConfigMap", given.run.metadata.namespace, name) if name else None
    except ForbiddenError as error:
        target.note(f"the config file is not compared: {error}")
        return
    if config_map is not None:
        rendered = render_file(with_uid(given, live["metadata"]["uid"]), target)
        before = frozen_texts(config_map, TrainingRun.model_validate(live))[CONFIG_KEY]
        yield from text_changes(CONFIG_KEY, before, rendered.config_map["data"][CONFIG_KEY])


def _beside(given: RunFile, target: Target) -> Iterator[str]:
    """ConfigMaps file by file, RLEnvironments as YAML; a run does not change runtimes."""
    for document in given.beside:
        kind, metadata = document["kind"], document["metadata"]
        if kind == RUNTIME_KIND:
            continue
        live = target.read(kind, metadata["namespace"], metadata["name"])
        before, after = _texts(live), _texts(document)
        for name in sorted(before.keys() | after.keys()):
            yield from text_changes(f"{kind} {metadata['name']}: {name}", before.get(name, ""), after.get(name, ""))


def _texts(document: Manifest | None) -> dict[str, str]:
    if document is None:
        return {}
    if document["kind"] == "ConfigMap":
        return dict(document.get("data", {}))
    return {"spec": write_yaml(parse_environment(document).to_wire()["spec"])}


def _to_wire(given: RunFile, found: Difference, target: Target) -> dict[str, object]:
    changes = [{**asdict(change), "frozen": change.frozen} for change in found.fields]
    refusals = [{**refusal.to_wire(), "sentence": refusal.sentence} for refusal in found.refusals]
    head = {"target": target.label, "run": given.run.metadata.name, "new": found.new}
    return {**head, "changes": changes, "texts": list(found.texts), "refusals": refusals}


def _print(given: RunFile, found: Difference, target: Target) -> None:
    name = given.run.metadata.name
    if found.new:
        typer.echo(f"{name} would be created ({target.label})")
    elif found.exit_code is CommandExit.OK:
        typer.echo(f"{name} is as the file says ({target.label})")
    else:
        typer.echo(f"{name} in {target.label}:")
    for change in found.fields:
        typer.echo(f"  {change.field}: {change.before} -> {change.after}")
    for line in found.texts:
        typer.echo(f"  {line}")
    for refusal in found.refusals:
        typer.echo(f"error: {refusal.code}: {refusal.sentence}", err=True)
