"""`rlctl export`: take out what a run has trained."""

from pathlib import Path
from typing import Annotated

import typer

from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.trained import call_tinker_atropos, weights_path
from rl_operator.targets.choice import choose_target
from rl_operator.targets.run_names import existing_run


def export(
    name: RunName,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder to make; one that is there must be empty.")],
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Write the trained weights of a run as a PEFT folder; while it trains, those of its newest checkpoint.

    rlctl export sorting --to ./sorting-adapter

    The folder holds adapter_model.safetensors and adapter_config.json, as peft and vllm (--lora-modules) read them.
    """
    from rl_operator.api.run import TrainingRun

    target = choose_target(local=local, context=context, state_dir=state_dir)
    run = TrainingRun.model_validate(existing_run(target, namespace or target.namespace, name))
    weights = run.status.weights
    path = weights_path(run, target, weights.state_path if weights else None)
    call_tinker_atropos(run, target, ["export", "--model-path", path, "--to", str(to)])
