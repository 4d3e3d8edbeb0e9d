"""`tinker-atropos`: one command per container, and the tools around them."""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rl_contract.env_vars import (
    RL_DATA_DIR,
    RL_FIRST_GROUP_DEADLINE,
    RL_LOG_FORMAT,
    RL_NEXT_ITEM_DEADLINE,
    RL_RESULT_FILE,
    RL_TRAINER_DEADLINE,
)
from rl_contract.logs import LogFormat, configure_logging, log_format_of
from rl_contract.processes import ExitCode
from tinker_atropos.errors import ConfigError, EnvironmentLostError, RunError
from tinker_atropos.result import write_reason
from tinker_atropos.running_time import run

logger = logging.getLogger(__name__)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tinker-atropos {metadata.version('tinker-atropos')}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The parts of a training run, one command each, and the tools around them."""


LogFormatOption = Annotated[
    LogFormat, typer.Option(envvar=RL_LOG_FORMAT, help="text, or json: one object a line, with a step's metrics.")
]

# Each command imports what it needs: `tinker-atropos environments` must not import torch or the SDK.


@app.command()
def api(
    data: Annotated[Path, typer.Option(help="Folder of the journal.")] = Path("./api"),
    log_format: LogFormatOption = "text",
) -> None:
    """Serve the trajectory API."""
    from tinker_atropos.settings import load_settings
    from tinker_atropos.trajectory_api.api_process import run_api

    _run(run_api(load_settings("api"), data), log_format)


@app.command(short_help="Train against a Tinker backend, and serve inference.")
def trainer(
    config: Annotated[Path, typer.Option(help="The run's config file.")],
    data: Annotated[
        Path | None,
        typer.Option(envvar=RL_DATA_DIR, help="Folder of the ledger of samples; default: a temporary one."),
    ] = None,
    log_format: LogFormatOption = "text",
) -> None:
    """Train against a Tinker backend, and serve inference from the current policy."""
    from tinker_atropos.settings import load_settings
    from tinker_atropos.trainer.trainer_process import run_trainer

    _run(run_trainer(load_settings("trainer"), config, data), log_format)


@app.command(short_help="Serve an environment, or try it with a provider's model.")
def environment(
    name_or_path: Annotated[str, typer.Argument(help="sort_digits, reasoning-gym/NAME, or a file's path.")],
    mode: Annotated[
        Literal["serve", "process"],
        typer.Argument(help="serve: make rollouts until the run is over. process: try some items with --model."),
    ],
    *,
    config: Annotated[Path, typer.Option(help="The run's config file.")],
    trainer_deadline: Annotated[
        float, typer.Option(envvar=RL_TRAINER_DEADLINE, help="Longest wait for the trainer, in seconds.")
    ] = 600.0,
    first_group_deadline: Annotated[
        float, typer.Option(envvar=RL_FIRST_GROUP_DEADLINE, help="Longest wait for a first group, in seconds.")
    ] = 1800.0,
    next_item_deadline: Annotated[
        float, typer.Option(envvar=RL_NEXT_ITEM_DEADLINE, help="Longest time without an item, in seconds.")
    ] = 300.0,
    model: Annotated[str, typer.Option(help="process: the model, as the provider at RL_INFERENCE_URL names it.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="process: items to try.")] = 3,
    group_size: Annotated[
        int | None, typer.Option(min=1, help="process: completions of each item; default: the config's.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="process: a JSON list of prompts to try, each one of the environment's own.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="process: longest completion; default: the environment's.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="process: of the completions; default: the environment's.")
    ] = None,
    limit: Annotated[float, typer.Option(min=0.1, help="process: longest time in all, in seconds.")] = 600.0,
    log_format: LogFormatOption = "text",
) -> None:
    """Serve an environment (make rollouts, score them, evaluate), or try it with a model of a provider."""
    from tinker_atropos.environments.runner.environment_process import run_environment
    from tinker_atropos.environments.runner.loading.environment_files import Deadlines
    from tinker_atropos.environments.trial.provider import Wishes
    from tinker_atropos.environments.trial.trial_process import TrialOptions, run_trial
    from tinker_atropos.settings import load_settings

    if mode == "process":
        wishes = Wishes(max_tokens, temperature)
        work = run_trial(name_or_path, config, TrialOptions(model, steps, group_size, limit, prompts, wishes))
    else:
        deadlines = Deadlines(trainer=trainer_deadline, first_group=first_group_deadline, next_item=next_item_deadline)
        work = run_environment(load_settings("environment"), name_or_path, config, deadlines)
    try:
        _run(work, log_format)
    except SystemExit as left:  # from one of the environment's own tasks: it propagates through the event loop
        raise EnvironmentLostError(f"the environment left early: it called sys.exit({left.code!r})") from None


@app.command(hidden=True)
def provider(model: Annotated[list[str], typer.Option(help="A model of the trial; may be repeated.")]) -> None:
    """Pass a trial's requests on to the provider of RL_INFERENCE_URL, with the key of RL_INFERENCE_API_KEY."""
    from tinker_atropos.environments.trial.provider_gate import serve_provider

    _run(serve_provider(model), "text")


@app.command(short_help="Check an environment before it is trained on.")
def check(
    name_or_path: Annotated[str, typer.Argument(help="A bundled environment, or the path of an environment's file.")],
    *,
    config: Annotated[
        Path | None, typer.Option(help="A run's config file; default: the environment's own, the bundled tokenizer.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="A model of the provider at RL_INFERENCE_URL; default: scripted answers.")
    ] = "",
    groups: Annotated[int, typer.Option(min=1, help="Groups to make, each of one item.")] = 3,
    limit: Annotated[float, typer.Option(min=0.1, help="Longest time in all, in seconds.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same answers.")] = 0,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Check an environment: its items, tokens, masks, rewards and grader. Exit code 1 if something failed."""
    from tinker_atropos.check.check_process import CheckOptions, run_check

    configure_logging(log_format_of())
    try:
        code = asyncio.run(run_check(name_or_path, CheckOptions(config, model, groups, limit, seed, output)))
    except SystemExit:  # from one of the environment's own tasks: it propagates through the event loop
        raise typer.Exit(ExitCode.FAILURE) from None
    raise typer.Exit(code)


@app.command(short_help="List environments, read from their source.")
def environments(
    path: Annotated[Path | None, typer.Option(help="A folder of environments; the bundled ones by default.")] = None,
    entry: Annotated[
        str | None,
        typer.Option(help="One file of --path, by its path below it: can it be served, and with what fields?"),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o")] = "table",
) -> None:
    """List environments, read from their source without running it."""
    import gc

    from tinker_atropos.environments.adapters.families import as_json, as_table, look

    gc.disable()  # syntax trees are many objects, and all of them live until this short process exits
    try:
        found = look(path, entry)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if output == "json":
        typer.echo(as_json(found))  # exit code 0 whatever it contains: the problem is the answer
        return
    typer.echo(as_table(found), nl=False)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if found.problem:
        raise ConfigError(found.problem.sentence)


@app.command(short_help="Serve the rollouts that a run's trainer kept.")
def rollouts(
    idle_exit: Annotated[float, typer.Option(min=0, help="End after so many seconds without a request; 0: never.")] = 0,
    log_format: LogFormatOption = "text",
) -> None:
    """Serve the rollouts that a run's trainer kept in RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL, after it has ended."""
    from tinker_atropos.rollout_files.rollout_server import serve_rollouts
    from tinker_atropos.settings import load_settings

    _run(serve_rollouts(load_settings("trainer"), idle_exit), log_format)


@app.command(short_help="Talk to trained weights.")
def sample(
    prompt: Annotated[str, typer.Argument(help="What to say; - reads it from stdin.")],
    *,
    model_path: Annotated[str | None, typer.Option(help="tinker://…/sampler_weights/… or tinker://…/weights/…")] = None,
    base_model: Annotated[str | None, typer.Option(help="In place of weights: a model, as it was before.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="bundled, a folder or a name; default: the backend's.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take the prompt as it is, not as a user's message.")] = False,
    n: Annotated[int, typer.Option("-n", min=1, max=128, help="Completions.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the likeliest token.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same completions.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Talk to trained weights, at the backend of TINKER_BASE_URL and TINKER_API_KEY."""
    import json

    from tinker_atropos.weights.sample_weights import SampleOptions
    from tinker_atropos.weights.sample_weights import sample as sample_from

    said = sys.stdin.read().rstrip("\n") if prompt == "-" else prompt
    completions = asyncio.run(
        sample_from(SampleOptions(model_path, said, tokenizer, raw, n, max_tokens, temperature, seed, base_model))
    )
    if output == "json":
        whose = {"modelPath": model_path} if model_path else {"baseModel": base_model}
        wire = {**whose, "prompt": said, "completions": [each.to_wire() for each in completions]}
        typer.echo(json.dumps(wire, indent=2, ensure_ascii=False))
        return
    for number, completion in enumerate(completions, 1):
        if n > 1:
            typer.secho(f"--- {number} ({completion.tokens} tokens, {completion.stop_reason})", dim=True)
        typer.echo(completion.text)


@app.command(short_help="Serve weights or a model as a teacher of others.")
def teacher(
    *,
    model_path: Annotated[str | None, typer.Option(help="tinker://…/sampler_weights/… or tinker://…/weights/…")] = None,
    base_model: Annotated[str | None, typer.Option(help="In place of weights: a model, as it was before.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: the kernel's choice.")] = 8100,
    log_format: LogFormatOption = "text",
) -> None:
    """Serve weights or a model of the backend of TINKER_BASE_URL and TINKER_API_KEY as a teacher: it scores token ids
    as vLLM does (prompt_logprobs of /v1/completions). With TEACHER_API_KEY, requests have to carry that key.
    """
    from tinker_atropos.weights.teacher_server import TeacherOptions, serve_teacher

    _run(serve_teacher(TeacherOptions(model_path, base_model, host, port)), log_format)


@app.command(short_help="Write trained weights as a PEFT folder.")
def export(
    *,
    model_path: Annotated[str, typer.Option(help="tinker://…/weights/… or tinker://…/external_weights/…")],
    to: Annotated[Path, typer.Option(help="Folder to make.")],
) -> None:
    """Write trained weights as a PEFT folder, from the backend of TINKER_BASE_URL and TINKER_API_KEY."""
    from tinker_atropos.weights.export_weights import export as export_to
    from tinker_atropos.weights.export_weights import how_to_use

    size = asyncio.run(export_to(model_path, to))
    typer.echo(f"{to}: {size / 1e6:.1f} MB, {how_to_use(to)}")


@app.command(short_help="Compute a trained step again.")
def replay(
    *,
    config: Annotated[Path, typer.Option(help="The run's config file.")],
    rollouts: Annotated[Path, typer.Option(help="Folder with STEP.jsonl of it, and of steps before it.")],
    step: Annotated[int, typer.Option(min=1, help="Its number.")],
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Compute a trained step again, at the backend of TINKER_BASE_URL and TINKER_API_KEY, beside what was recorded. The
    run began with RL_START_FROM, if that is set. Nothing is saved.
    """
    import json

    from tinker_atropos.library_imports import prepare_for_sdk

    prepare_for_sdk()
    from tinker_atropos.settings import load_settings
    from tinker_atropos.weights.step_replay import replay as replay_step

    found = asyncio.run(
        replay_step(config, rollouts, step, load_settings("trainer"), lambda said: typer.echo(said, err=True))
    )
    typer.echo(json.dumps(found.to_wire(), indent=2) if output == "json" else found.text)


def _run(main: Coroutine[Any, Any, None], log_format: LogFormat) -> None:
    """Run a container's main coroutine to its end."""
    configure_logging(log_format)
    run(main)


def main() -> None:
    """The program: a RunError becomes one line on stderr, the termination message, and its exit code."""
    try:
        app()
    except RunError as error:
        write_reason(os.environ.get(RL_RESULT_FILE), str(error))
        if log_format_of() == "json":
            logger.error("%s", error)  # noqa: TRY400 -- the message is enough
        else:
            typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
