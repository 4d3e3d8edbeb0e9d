"""rl_start_training: from a draft, or a stopped run, to one that trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, STARTED_AS_ANNOTATION, TRAINER_CONTAINER
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.sections import effective_sections
from rl_operator.api.settings.fields import TRAINER_FIELDS
from rl_operator.api.settings.nested_fields import flattened
from rl_operator.api.training_run import TrainingRun
from rl_operator.check import check_run, runtime_not_found
from rl_operator.render import render_run
from rl_operator.status.attempt.restored import is_restored
from rl_operator.targets.gitops import suspend_warning
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.missing_keys import missing_for
from rl_operator.targets.target import Missing
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, OptionalRun, ToolRefusedError
from rl_operator.tools.answers.polls import forget, next_look
from rl_operator.tools.answers.run_status import headline, without_empty
from rl_operator.tools.answers.shown_text import one_line
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_get_results import results_of
from rl_operator.tools.drafts.draft_check import refused, wire_refusals
from rl_operator.tools.runs import chosen_run, is_draft, state_of

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


class StartTraining(Arguments):
    run_id: OptionalRun = None
    dry_run: bool = Field(default=False, description="Only say what would start, and what is missing.")


@dataclass(frozen=True)
class Outlook:
    """The inputs that a run would get. `config_map`: the name that its config has or would have."""

    inputs: RunInputs | None
    refusals: tuple[Refusal, ...]
    missing: tuple[Missing, ...]
    config_map: str | None


def start_training(context: CallContext, asked: StartTraining) -> Answer:
    run = chosen_run(context, asked.run_id)
    if run.status.finished:
        return results_of(context, run) | {"message": _over(run)}
    outlook = _outlook(context, run)
    warning = None
    waits = run.spec.suspend or is_restored(run)
    if waits and not asked.dry_run:
        _refuse(run, outlook)
        warning, message = suspend_warning(run.to_wire(), suspend=False), _begins(run)
        run = _start(context, run)
    else:
        context.target.look_after(*run.key)
        message = _would(run) if waits else f"{run.metadata.name} is {state_of(run)} already: nothing was changed"
    answer = start_answer(run, outlook.inputs, outlook.config_map, outlook.missing, message)
    return answer | without_empty({"refusals": wire_refusals(outlook.refusals), "warning": warning})


def _outlook(context: CallContext, run: TrainingRun) -> Outlook:
    """A run that has started is not checked again: its settings are frozen."""
    source = FileInputs(context.target)
    inputs = inputs_of(run, source)
    begins, name = run.status.start_time is None or is_restored(run), run.status.config_map_name
    if inputs is None:
        return Outlook(None, (runtime_not_found(run, source.runtime_names()),) if begins else (), (), name)
    refusals = check_run(run, inputs) if begins else ()
    if begins and not refusals and inputs.environment.pending is None:
        files = source.files(inputs.environment.own) if inputs.environment.own else None
        name = render_run(run, inputs, files).config_map["metadata"]["name"]
    missing = missing_for(context.target, context.namespace, inputs)
    return Outlook(inputs, refusals, (*missing, *context.target.missing_packages(run)), name)


def _refuse(run: TrainingRun, outlook: Outlook) -> None:
    name, wires = run.metadata.name, [missing.to_wire() for missing in outlook.missing]
    if outlook.refusals:
        raise refused(*outlook.refusals, run_id=name, missing=wires)
    if needed := next((missing for missing in outlook.missing if missing.needed), None):
        raise ToolRefusedError(
            f"{name} is not started: {needed.what} {needed.name} is missing ({needed.why}); supply it: {needed.how}",
            run_id=name,
            missing=wires,
        )


def _start(context: CallContext, run: TrainingRun) -> TrainingRun:
    mark = {STARTED_AS_ANNOTATION: None} if is_restored(run) else None
    changed = context.target.change_spec(*run.key, {"suspend": False}, mark)
    forget(context, run.metadata.name)
    return TrainingRun.model_validate(changed)


def _begins(run: TrainingRun) -> str:
    name, follow = run.metadata.name, "follow it: rl_check_status with wait_seconds"
    if is_restored(run):
        return f"{name} was restored from a backup and trains from the beginning; {follow}"
    if run.status.checkpoint:
        return f"{name} continues from step {run.status.checkpoint.step}; {follow}"
    return f"{name} starts; {follow}"


def _would(run: TrainingRun) -> str:
    state = "a draft" if is_draft(run) else state_of(run)
    return f"a dry run: {run.metadata.name} is {state} and nothing was changed; without dry_run it starts"


def _over(run: TrainingRun) -> str:
    name = run.metadata.name
    return (
        f"{name} is {state_of(run)}: these are its results, and it is never trained again. To train on from its "
        f'weights, draft a run with rl_select_environment and set its start_from to {{"run": "{name}"}}'
    )


TOOLS: Final = (
    AgentTool(
        name="rl_start_training",
        title="Start training",
        description="Start a draft or resume a stopped run. From here on it costs money: make a dry run first.",
        arguments=StartTraining,
        call=start_training,
        effect="starts",
    ),
)
