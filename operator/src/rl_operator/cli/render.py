"""`rlctl render`: show what a file becomes, before it costs anything."""

import typer

from rl_operator.cli.backend import choose_backend
from rl_operator.cli.options import Context, Local, Output, OutputFormat, RunFile, StateDir
from rl_operator.cli.printing import print_object
from rl_operator.cli.targets import read_run_file

UID_PLACEHOLDER = "00000"
"""The uid comes with the object; its first five characters stand in the pod's name."""


def render(
    file: RunFile,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Print the config and the pod that a run's file would become; nothing is created."""
    from rl_operator.api.loading import DocumentError
    from rl_operator.cli.checking import refusals_of
    from rl_operator.render import pod_of_attempt, render_run

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    run = read_run_file(file)
    if refusals := refusals_of(run, backend):
        raise DocumentError(*refusals)
    named = run.with_changes(metadata=run.metadata.with_changes(uid=UID_PLACEHOLDER))
    environment = backend.catalogue().by_name[run.spec.environment]
    rendered = render_run(named, backend.runtimes()[run.spec.runtime], environment)
    config_map, pod = rendered.config_map, pod_of_attempt(rendered.pod, 1)
    if output in (Output.JSON, Output.YAML):
        print_object({"apiVersion": "v1", "kind": "List", "items": [config_map, pod]}, output)
        return
    typer.echo(f"# config.yaml, in ConfigMap {config_map['metadata']['name']} ({backend.label})")
    typer.echo(config_map["data"]["config.yaml"].rstrip())
    typer.echo("---\n# the pod of the first attempt")
    print_object(pod, Output.YAML)
