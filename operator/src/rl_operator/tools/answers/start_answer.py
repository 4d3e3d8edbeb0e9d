"""What rl_start_training reports about a run: its settings, where to watch it, what it would wait for. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.api.refusal import redacted
from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.sections import effective_sections
from rl_operator.api.settings.fields import TRAINER_FIELDS
from rl_operator.api.settings.nested_fields import flattened
from rl_operator.targets.target import Missing
from rl_operator.tools.answers.polls import next_look
from rl_operator.tools.answers.run_status import headline, without_empty
from rl_operator.tools.answers.shown_text import one_line
from rl_operator.tools.tool import Answer

MATTERS: Final = ("total_steps", "group_size", "batch_size", "max_token_length")
"""Fields of the environment that are reported for every run."""


def start_answer(
    run: TrainingRun, inputs: RunInputs | None, config_map: str | None, missing: Sequence[Missing], message: str
) -> Answer:
    """`inputs` None: the run's runtime is gone. `config_map`: name of the ConfigMap with the config, if known."""
    wandb = _wandb(run, inputs)
    return without_empty(
        headline(run)
        | {
            "message": message,
            "config": config_of(run, inputs),
            "wandb": wandb,
            "wandb_project": wandb.get("project"),
            "wandb_run_name": wandb["run_name"],
            "config_path": f"ConfigMap {run.metadata.namespace}/{config_map}" if config_map else None,
            "logs": _logs(run),
            "next_check_in_seconds": next_look(run),
        }
    ) | {"missing": [each.to_wire() for each in missing]}


def config_of(run: TrainingRun, inputs: RunInputs | None) -> Answer:
    """What the run sets, and the few values that matter; keys are not shown."""
    known = inputs.environment.known if inputs else None
    asked = {**flattened(run.spec.config, known.fields_by_name if known else ()), **run.spec.tinker}
    values = asked if inputs is None or known is None else _effective(run, inputs) | asked
    return {name: redacted(value, name) for name, value in values.items()}


def _effective(run: TrainingRun, inputs: RunInputs) -> dict[str, Any]:
    """The effective values, whatever set them."""
    assert inputs.environment.known is not None, "the caller looked"
    sections = effective_sections(run, inputs.runtime, inputs.environment.known)
    rate = sections.tinker.get("learning_rate", TRAINER_FIELDS["learning_rate"].default)
    return {
        "model": sections.openai.get("model_name") or sections.env.get("tokenizer_name"),
        **{name: sections.env[name] for name in MATTERS if name in sections.env},
        "learning_rate": rate,
    }


def _wandb(run: TrainingRun, inputs: RunInputs | None) -> Answer:
    asked, usual = run.spec.wandb, inputs.runtime.spec.wandb if inputs else None
    names = {
        "project": asked.project or (usual.project if usual else None),
        "entity": asked.entity or (usual.entity if usual else None),
        "run_name": asked.name or run.metadata.name,
    }
    return without_empty({name: one_line(value) for name, value in names.items() if value})


def _logs(run: TrainingRun) -> Answer:
    containers = {"api": API_CONTAINER, "trainer": TRAINER_CONTAINER, "env": ENVIRONMENT_CONTAINER}
    name = run.metadata.name
    return {key: f"rl_get_logs(run_id={name!r}, container={each!r})" for key, each in containers.items()}
