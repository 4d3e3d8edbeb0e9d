"""The commands of rlctl. Each imports what it needs when it is called: start-up time is a feature."""

import typer

from rl_operator.cli.commands import (
    control_run,
    diff,
    doctor,
    follow_run,
    init,
    list_environments,
    list_runs,
    render,
    show_run,
    start_run,
    tools,
    trained_weights,
    validate,
)

app = typer.Typer(
    name="rlctl",
    help="Train language models with reinforcement learning: on a cluster, or on this machine with --local.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("run")(start_run.run)
app.command("validate")(validate.validate)
app.command("render")(render.render)
app.command("diff")(diff.diff)
app.command("init")(init.init)
app.command("list")(list_runs.list_runs)
app.command("get")(show_run.get)
app.command("watch")(follow_run.watch)
app.command("wait")(follow_run.wait)
app.command("logs")(follow_run.logs)
app.command("stop")(control_run.stop)
app.command("resume")(control_run.resume)
app.command("delete")(control_run.delete)
app.command("results")(show_run.results)
app.command("sample")(trained_weights.sample)
app.command("export")(trained_weights.export)
app.command("environments")(list_environments.environments)
app.command("doctor")(doctor.doctor)
app.add_typer(tools.app, name="tools")
