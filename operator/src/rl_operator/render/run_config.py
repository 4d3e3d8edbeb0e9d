"""The run's config file: what both sides read, without addresses and without secrets."""

from typing import Any

from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.sections import effective_sections


def render_config(run: TrainingRun, inputs: RunInputs) -> dict[str, Any]:
    """The sections of `config.yaml` (contract: Config file). `openai` is a list of one: there is one server."""
    runtime, environment = inputs.runtime, inputs.environment.known
    assert environment is not None, "an accepted run has a known environment"
    sections = effective_sections(run, runtime, environment)
    wandb = run.spec.wandb
    tracking = {
        "wandb_project": wandb.project or runtime.spec.wandb.project,
        "wandb_group": wandb.group,
        "wandb_run_name": wandb.name or run.metadata.name,
    }
    return {
        "env": sections.env,
        "openai": [sections.openai],
        "tinker": sections.tinker | {name: value for name, value in tracking.items() if value is not None},
        "slurm": False,
        "testing": False,
    }
