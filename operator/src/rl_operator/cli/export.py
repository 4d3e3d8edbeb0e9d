"""`rlctl export`: take out what a run has trained."""

from pathlib import Path
from typing import Annotated

import typer

from rl_operator.backends.choice import choose_backend
from rl_operator.backends.targets import existing_run
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.trained import call_tinker_atropos, weights_path


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

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    run = TrainingRun.model_validate(existing_run(backend, namespace or backend.namespace, name))
    weights = run.status.weights
    path = weights_path(run, backend, weights.state_path if weights else None)
    call_tinker_atropos(run, backend, ["export", "--model-path", path, "--to", str(to)])
