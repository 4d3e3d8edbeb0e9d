"""`rlctl render`: show what a file becomes, before it costs anything."""

from typing import TYPE_CHECKING

import typer

from rl_operator.cli.options import ModelFolder, Output, OutputFormat, RunPath, Scope, on_target
from rl_operator.cli.printing import print_object
from rl_operator.targets.target import Manifest

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.render import Rendered
UID_PLACEHOLDER = "00000"
"""The uid comes with the object; its first five characters are part of the names of pods and of the Service."""


@on_target
def render(
    file: RunPath,
    *,
    model: ModelFolder = None,
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Print every object that a run's file would become, in the order of creation; nothing is created.

    The uid comes with the object. Here it is 00000, also in the names and hashes that follow from it.
    """
    from rl_operator.targets.inputs.file_inputs import render_file
    from rl_operator.targets.inputs.run_file import as_it_runs, read_run_file, with_uid

    target = scope.target
    given = read_run_file(file, target, scope.asked_namespace, model)
    named = with_uid(given, UID_PLACEHOLDER)
    objects = objects_of(as_it_runs(named, target).run, render_file(named, target))
    if output is Output.JSON:
        print_object({"apiVersion": "v1", "kind": "List", "items": objects}, output)
        return
    if output is not Output.YAML:
        typer.echo(f"# {len(objects)} objects of run {given.run.metadata.name} in {target.label}")
    for manifest in objects:
        typer.echo("---")
        if manifest["kind"] == "ConfigMap" and output is not Output.YAML:
            _print_config_map(manifest)
        else:
            print_object(manifest, Output.YAML)


def objects_of(run: "TrainingRun", rendered: "Rendered") -> list[Manifest]:
    """What the first attempt creates, in this order; of sandboxes, which are all alike, the first. Environment pods
    follow once the run's pod has an IP.
    """
    from rl_operator.api.environment import runs_apart
    from rl_operator.render import environment_pod, pod_of_attempt, sandbox_pod, share_env_vars, with_share

    apart, templates = runs_apart(run.spec.environment), rendered.templates
    slots = range(0 if apart else 1, run.spec.environment_replicas)
    return [
        *rendered.config_maps,
        *(templates.network if slots else ()),
        pod_of_attempt(templates.pod, 1, exposed=bool(slots), share=share_env_vars(run, 0)),
        *(with_share(environment_pod(templates.environment, 1, slot, 0), share_env_vars(run, slot)) for slot in slots),
        *templates.sandbox_network,
        *([sandbox_pod(templates.sandbox, 1, 0, 0)] if templates.sandbox else ()),
    ]


def _print_config_map(config_map: "Manifest") -> None:
    """Multi-line texts as they are; templates are left to -o yaml: the objects made from them follow."""
    from rl_operator.documents.yaml_lines import block

    metadata = config_map["metadata"]
    typer.echo(f"# ConfigMap {metadata['namespace']}/{metadata['name']}")
    for name, text in config_map["data"].items():
        template = name.endswith(".json")
        typer.echo(f"# {name}: {len(text)} characters\n" if template else block(name, text, indent=0), nl=False)
