"""`rlctl sample`: prompt the weights that a run has trained.

`rlctl export`: download the weights that a run has trained.

Both find a run's weights and call the program that can use them, with the same streams.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import OutputFormat, OutputKind, RunName, Scope, on_target
from rl_operator.cli.printing import program
from rl_operator.operator_errors import RefusedError
from rl_operator.programs import find_program
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_weights import BACKEND_AWAY, backend_env_vars, best_of, tokenizer_of
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Target

Best = Annotated[bool, typer.Option("--best", help="The weights with the best held-out figure, not the last ones.")]


@on_target
def sample(
    name: RunName,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to say; - reads it from stdin.")],
    *,
    count: Annotated[int, typer.Option("--count", "-k", min=1, max=128, help="Completions.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the likeliest token.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same completions.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take the prompt as it is, without the chat template.")] = False,
    best: Best = False,
    base: Annotated[bool, typer.Option("--base", help="The base model, as it was before training.")] = False,
    scope: Scope,
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """Talk to the trained weights of a run; while it trains, to those of its newest checkpoint.

    rlctl sample sorting "sort 4 1 3 2" --count 4 --temperature 0.7

    With --base and the same seed once more, it shows what training has changed.

    The prompt is a user's message in the chat template of the run's tokenizer. The backend of the run's runtime
    answers: with --local and the runtime tiny, a service that is started on demand; else the one of TINKER_API_KEY
    and TINKER_BASE_URL (default: the runtime's URL).
    """
    if output not in (OutputKind.TEXT, OutputKind.JSON):
        raise RefusedError(f"--output is {output.value}; completions are printed as text or json")
    target = scope.target
    run = TrainingRun.model_validate(existing_run(target, scope.namespace, name))
    if base and best:
        raise RefusedError("--base and --best are two models: ask one after the other")
    if base:
        asked = ["--base-model", base_model(run, target)]
    else:
        asked = ["--model-path", chosen_weights(run, target, to_sample=True, best=best)]
    sampling = ["-n", str(count), "--max-tokens", str(max_tokens), "--temperature", str(temperature)]
    chosen = [*([] if seed is None else ["--seed", str(seed)]), *(["--raw"] if raw else []), "-o", output.value]
    where = [*asked, *tokenizer_of(run, target)]
    call_tinker_atropos(run, target, ["sample", *where, *sampling, *chosen, "--", prompt])


@on_target
def export(
    name: RunName,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder to make; one that is there must be empty.")],
    best: Best = False,
    scope: Scope,
) -> None:
    """Write the trained weights of a run as a PEFT folder; while it trains, those of its newest checkpoint.

    rlctl export sorting --to ./sorting-adapter

    The folder holds adapter_model.safetensors and adapter_config.json, as peft and vllm (--lora-modules) read them.
    """
    target = scope.target
    run = TrainingRun.model_validate(existing_run(target, scope.namespace, name))
    path = chosen_weights(run, target, to_sample=False, best=best)
    call_tinker_atropos(run, target, ["export", "--model-path", path, "--to", str(to)])


def base_model(run: TrainingRun, target: Target) -> str:
    """The one that the run was trained from. Raises RefusedError if that is not known any more."""
    if model := TrainedSettings(target).of(run).get("model"):
        return str(model)
    raise RefusedError(
        f"the base model of run {run.metadata.name} in {target.label} is not known: its config and its runtime "
        f"{run.spec.runtime!r} are gone, or you may not read them; tinker-atropos sample --base-model takes its name"
    )


def chosen_weights(run: TrainingRun, target: Target, *, to_sample: bool, best: bool = False) -> str:
    """The path of the final weights, else of the newest checkpoint; or of the best ones. Says which, unless they are
    final. `to_sample`: else they are exported. Raises RefusedError if there are none.
    """
    status, name = run.status, run.metadata.name
    if best:
        found, first = best_of(run, target), status.metrics.baseline if status.metrics else None
        figure = found.held_out.value
        below = f"; before training it was {first.value:g}" if first is not None and first.value > figure else ""
        typer.echo(f"the best weights of {name}: step {found.step}, held-out {figure:g}{below}", err=True)
        return found.sampler_path if to_sample else found.state_path
    if (weights := status.weights) and (final := weights.sampler_path if to_sample else weights.state_path):
        return final
    if checkpoint := status.checkpoint:
        typer.echo(f"{name} is {status.phase}: these are its weights after step {checkpoint.step}", err=True)
        return checkpoint.state_path
    if run.at_rest:
        hint = f"it is {status.phase} and has no checkpoint; why: {program()} get {name}{target.flags}"
    else:
        hint = f"it has trained no checkpoint yet; wait for it: {program()} wait {name}{target.flags}"
    raise RefusedError(f"there are no weights of run {name} in {target.label}: {hint}")


def call_tinker_atropos(
    run: TrainingRun, target: Target, arguments: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run `tinker-atropos` with the backend of the run's runtime, and these variables. Exits with the contract's code
    if it fails.
    """
    found = find_program("tinker-atropos", os.environ.get("PATH"))
    env_vars = {**os.environ, **backend_env_vars(run, target, os.environ), **variables}
    code = subprocess.run([found, *arguments], env=env_vars, check=False).returncode  # noqa: S603 -- our own program
    if code:
        raise typer.Exit(CommandExit.UNREACHABLE if code == BACKEND_AWAY else CommandExit.REFUSED)
