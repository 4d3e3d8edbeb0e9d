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
    from rl_operator.api.premises import Premises, choose_environment
    from rl_operator.cli.checking import refusals_of
    from rl_operator.render import pod_of_attempt, render_run

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    run = read_run_file(file)
    if refusals := refusals_of(run, backend):
        raise DocumentError(*refusals)
    named = run.with_changes(metadata=run.metadata.with_changes(uid=UID_PLACEHOLDER))
    runtime = backend.runtimes()[run.spec.runtime]
    environment = choose_environment(run.spec.environment, runtime, backend.catalogue(), None)
    rendered = render_run(named, Premises(runtime, environment))
    config_map, pod = rendered.config_map, pod_of_attempt(rendered.pod, 1)
    if output in (Output.JSON, Output.YAML):
        print_object({"apiVersion": "v1", "kind": "List", "items": [config_map, pod]}, output)
        return
    typer.echo(f"# config.yaml, in ConfigMap {config_map['metadata']['name']} ({backend.label})")
    typer.echo(config_map["data"]["config.yaml"].rstrip())
    typer.echo("---\n# the pod of the first attempt")
    print_object(pod, Output.YAML)
