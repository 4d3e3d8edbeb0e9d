"""`rlctl sample`: talk to what a run has trained."""

from typing import Annotated

import typer

from rl_operator.cli.options import Context, Local, Namespace, Output, OutputFormat, RunName, StateDir
from rl_operator.cli.trained import call_tinker_atropos, tokenizer_of, weights_path
from rl_operator.errors import RefusedError
from rl_operator.targets.choice import choose_target
from rl_operator.targets.run_names import existing_run


def sample(
    name: RunName,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to say; - reads it from stdin.")],
    *,
    count: Annotated[int, typer.Option("--count", "-k", min=1, max=128, help="Completions.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the likeliest token.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same completions.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take the prompt as it is, without the chat template.")] = False,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
    output: OutputFormat = Output.TEXT,
) -> None:
    """Talk to the trained weights of a run; while it trains, to those of its newest checkpoint.

    rlctl sample sorting "sort 4 1 3 2" --count 4 --temperature 0.7

    The prompt is a user's message in the chat template of the run's tokenizer. The backend of the run's runtime
    answers: with --local and the runtime tiny, a service that is started on demand; else the one of TINKER_API_KEY
    and TINKER_BASE_URL (default: the runtime's URL).
    """
    from rl_operator.api.run import TrainingRun

    if output not in (Output.TEXT, Output.JSON):
        raise RefusedError(f"--output is {output.value}; completions are printed as text or json")
    target = choose_target(local=local, context=context, state_dir=state_dir)
    run = TrainingRun.model_validate(existing_run(target, namespace or target.namespace, name))
    weights = run.status.weights
    path = weights_path(run, target, weights.sampler_path if weights else None)
    sampling = ["-n", str(count), "--max-tokens", str(max_tokens), "--temperature", str(temperature)]
    chosen = [*([] if seed is None else ["--seed", str(seed)]), *(["--raw"] if raw else []), "-o", output.value]
    where = ["--model-path", path, *tokenizer_of(run, target)]
    call_tinker_atropos(run, target, ["sample", *where, *sampling, *chosen, "--", prompt])
