"""rl_health_check: whether runs can start, and what is missing. rl_start_training: from a draft, or a stopped run, to
one that trains. rl_stop_training: end a run cleanly, with a checkpoint to continue from.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from pydantic import Field

from rl_contract.env_vars import TINKER_API_KEY, WANDB_API_KEY
from rl_operator.api.names import (
    API_CONTAINER,
    ENVIRONMENT_CONTAINER,
    STARTED_AS_ANNOTATION,
    TRAINER_CONTAINER,
    VERSION,
)
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime, SecretKey
from rl_operator.api.settings.fields import TRAINER_FIELDS, flattened
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ForbiddenError
from rl_operator.render.manifests import render_run
from rl_operator.status.attempt.restored import is_restored
from rl_operator.status.text.reasons import REASONS
from rl_operator.targets.inputs.file_inputs import FileInputs, judged
from rl_operator.targets.runs.run_control import suspend_warning
from rl_operator.targets.target import Missing, Target, how_to_supply
from rl_operator.tools.agent_tool import Answer, Arguments, OptionalRun, Run, ToolRefusedError, agent_tool
from rl_operator.tools.answers.polls import forget, looked_at, next_look
from rl_operator.tools.answers.run_status import checkpoint_of, headline, without_empty
from rl_operator.tools.answers.shown_text import one_line
from rl_operator.tools.call_context import CallContext, awaited
from rl_operator.tools.calls.rl_get_results import results_of
from rl_operator.tools.drafts.draft_refusals import refused, wire_refusals
from rl_operator.tools.runs import ACTIVE, chosen_run, named_run, state_of

NO_RUNTIME: Final = Missing(
    "runtime", "default", "there is no RLRuntime", "an administrator applies one: docs/how-to/install.md", needed=True
)


class HealthCheck(Arguments):
    """Nothing."""


@agent_tool(
    "Check the target", "Target, versions, operator, runtimes, and what is missing with how to supply it.", "reads"
)
def rl_health_check(context: CallContext, _: HealthCheck) -> Answer:
    health = context.target.health()
    runtimes, trouble = _runtimes(context)
    versions = {"rl_operator": version("rl-operator"), "api": VERSION, **health.versions}
    wanted = (each for runtime in runtimes.values() for each in missing_in(context.target, context.namespace, runtime))
    each_once = {missing.name: missing for missing in wanted}.values()
    missing = [*health.missing, *trouble, *each_once]
    found = {"versions": versions, "operator": health.operator, "runtimes": sorted(runtimes)}
    return context.where() | found | {"missing": [each.to_wire() for each in missing]}


def _runtimes(context: CallContext) -> tuple[dict[str, Runtime], list[Missing]]:
    """With what is missing if none is usable: for a caller without permission to read them, just that permission."""
    try:
        runtimes = context.target.runtimes()
    except ForbiddenError as error:
        return {}, [Missing("right", "rlruntimes", str(error), "an administrator grants it", needed=True)]
    return runtimes, [] if runtimes else [NO_RUNTIME]


def missing_for(target: Target, namespace: str, inputs: RunInputs) -> tuple[Missing, ...]:
    """For a run with these inputs. What cannot be checked is reported, but never as needed."""
    return (*missing_in(target, namespace, inputs.runtime, inputs.environment_keys), *_pending(inputs))


def missing_in(target: Target, namespace: str, runtime: Runtime, more: Sequence[SecretKey] = ()) -> tuple[Missing, ...]:
    """Programs and the keys that the runtime names, and more keys."""
    spec, name = runtime.spec, runtime.metadata.name
    keys = (
        (TINKER_API_KEY, spec.backend.key_secret, f"runtime {name} trains with it", True),
        (WANDB_API_KEY, spec.wandb.key_secret, "curves go to W&B with it; training works without", False),
        *((secret.key, secret, "environments get it", False) for secret in more),
    )
    return (*target.missing_programs(name), *_missing_keys(target, namespace, name, keys))


def _missing_keys(
    target: Target, namespace: str, runtime: str, keys: Iterable[tuple[str, SecretKey | None, str, bool]]
) -> Iterator[Missing]:
    """Of variables with their Secrets, what each is for, and whether it is needed."""
    for variable, secret, why, needed in keys:
        if secret is None or (there := target.has_key(namespace, runtime, variable, secret)):
            continue
        name, how = secret.name, how_to_supply(target, namespace, variable, secret)
        if target.runs_files:
            yield Missing("variable", variable, why, how, needed)
        elif there is None:
            unseen = f"{why}; you may not look at Secrets, so it may be there"
            yield Missing("Secret", name, unseen, f"kubectl -n {namespace} get secret {name}")
        else:
            yield Missing("Secret", name, why, how, needed)


def _pending(inputs: RunInputs) -> Iterator[Missing]:
    """An environment, or the image's catalog of them, that has not been read yet."""
    if inputs.environment.pending is not None:
        reason, sentence = inputs.environment.pending
        advice = REASONS[reason].advice if reason in REASONS else "wait for it"
        yield Missing("environment", reason, sentence, advice)


PATIENCE_SECONDS: Final = 20.0
"""How long a stop waits for the checkpoint; a large model may take longer to save it."""


class StopTraining(Arguments):
    run_id: Run


@agent_tool("Stop a run", "End a run with a checkpoint, from which rl_start_training resumes it.", "stops")
def rl_stop_training(context: CallContext, asked: StopTraining) -> Answer:
    run = named_run(context, asked.run_id)
    if state_of(run) not in ACTIVE:
        return _answer(run, f"{run.metadata.name} is not running: it is {state_of(run)}, so there is nothing to stop")
    warning = suspend_warning(run.to_wire(), suspend=True)
    if not run.spec.suspend:
        run = TrainingRun.model_validate(context.target.change_spec(*run.key, {"suspend": True}))
        forget(context, run.metadata.name)
    run = awaited(context, run, lambda: looked_at(context, run), lambda run: run.at_rest, PATIENCE_SECONDS)
    return without_empty(_answer(run, _sentence(run)) | {"warning": warning})


def _answer(run: TrainingRun, message: str) -> Answer:
    name, resumes = run.metadata.name, run.spec.suspend and not run.status.finished
    return without_empty(
        headline(run)
        | {
            "message": message,
            "checkpoint": checkpoint_of(run),
            "resume": f"rl_start_training(run_id={name!r})" if resumes else None,
        }
    )


def _sentence(run: TrainingRun) -> str:
    name, checkpoint = run.metadata.name, run.status.checkpoint
    match state_of(run):
        case "draft":
            return f"{name} will not start: it is a draft again"
        case "stopped":
            return f"{name} is stopped" + (f" and keeps step {checkpoint.step}" if checkpoint else "; it kept no step")
        case "stopping":
            return f"{name} is asked to stop and saves its checkpoint; wait for it: rl_check_status with wait_seconds"
        case state:
            return f"{name} is {state}: it ended before it could be stopped"


@dataclass(frozen=True)
class Outlook:
    """The inputs that a run would get; None: its runtime is gone. `config_map`: the name that its config has or would
    have.
    """

    inputs: RunInputs | None
    refusals: tuple[Refusal, ...]
    missing: tuple[Missing, ...]
    config_map: str | None


MATTERS: Final = ("total_steps", "group_size", "batch_size", "max_token_length")
"""Fields of the environment that are reported for every run."""


def start_answer(run: TrainingRun, outlook: Outlook, message: str) -> Answer:
    config_map, wandb = outlook.config_map, _wandb(run, outlook.inputs)
    return without_empty(
        headline(run)
        | {
            "message": message,
            "config": config_of(run, outlook.inputs),
            "wandb": wandb,
            "wandb_project": wandb.get("project"),
            "wandb_run_name": wandb["run_name"],
            "config_path": f"ConfigMap {run.metadata.namespace}/{config_map}" if config_map else None,
            "logs": _logs(run),
            "next_check_in_seconds": next_look(run),
        }
    ) | {"missing": [each.to_wire() for each in outlook.missing]}


def config_of(run: TrainingRun, inputs: RunInputs | None) -> Answer:
    """What the run sets, and the few values that matter; keys are not shown."""
    known = inputs.environment.known if inputs else None
    config = flattened(run.spec.config, known.fields_by_name if known else ())
    asked = {**config, **flattened(run.spec.trainer, TRAINER_FIELDS)}
    values = asked if inputs is None or known is None else _effective(run, inputs) | asked
    return {name: redacted(value, name) for name, value in values.items()}


def _effective(run: TrainingRun, inputs: RunInputs) -> dict[str, object]:
    sections = inputs.sections(run)
    rate = sections.trainer.get("learning_rate", TRAINER_FIELDS["learning_rate"].default)
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


@agent_tool(
    "Start training",
    "Start a draft or resume a stopped run. From here on it costs money: make a dry run first.",
    "starts",
)
def rl_start_training(context: CallContext, asked: StartTraining) -> Answer:
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
    return start_answer(run, outlook, message) | without_empty(
        {"refusals": wire_refusals(outlook.refusals), "warning": warning}
    )


def _outlook(context: CallContext, run: TrainingRun) -> Outlook:
    """A run that has started is not checked again: its settings are frozen."""
    source = FileInputs(context.target)
    inputs, refusals = judged(run, source)
    begins, name = run.status.start_time is None or is_restored(run), run.status.config_map_name
    if not begins:
        refusals = ()
    if inputs is None:
        return Outlook(None, refusals, (), name)
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
    state = "a draft" if run.is_draft else state_of(run)
    return f"a dry run: {run.metadata.name} is {state} and nothing was changed; without dry_run it starts"


def _over(run: TrainingRun) -> str:
    name = run.metadata.name
    return (
        f"{name} is {state_of(run)}: these are its results, and it is never trained again. To train on from its "
        f'weights, draft a run with rl_select_environment and set its start_from to {{"run": "{name}"}}'
    )
