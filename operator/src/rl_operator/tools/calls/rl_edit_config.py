"""rl_get_current_config: a draft's fields, the important ones first. rl_edit_config: all values or none, and only what
the check accepts.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import Field

from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.training_run import FROZEN_FIELDS, TrainingRun
from rl_operator.check.run_check import check_run
from rl_operator.documents.merge_patch import merge_patch
from rl_operator.documents.parse import DocumentError, parse_run
from rl_operator.operator_errors import ConflictError, InvalidError
from rl_operator.status.text.sentences import cut
from rl_operator.targets.inputs.file_inputs import FileInputs, required_inputs
from rl_operator.targets.inputs.parameters import SettableField
from rl_operator.targets.runs.run_control import gitops_owner
from rl_operator.tools.agent_tool import ANY_JSON, Answer, Arguments, OptionalRun, ToolRefusedError, agent_tool
from rl_operator.tools.answers.polls import forget
from rl_operator.tools.answers.run_status import without_empty
from rl_operator.tools.answers.shown_text import fit_tokens, tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.drafts.draft_refusals import (
    known_environment,
    refused,
    refused_at_the_door,
    together,
    wire_refusals,
)
from rl_operator.tools.drafts.field_names import (
    FREE_FORM,
    Edit,
    RunFields,
    Spec,
    changes_of,
    edits_of,
    run_fields,
    settings_of,
    value_in,
    with_edits,
)
from rl_operator.tools.runs import chosen_run, state_of


class GetCurrentConfig(Arguments):
    run_id: OptionalRun = None
    field: str | None = Field(default=None, description="This one alone, with its meaning.")


@agent_tool("Show a run's config", "Every field that may be set, with value, limits and locks.", "reads")
def rl_get_current_config(context: CallContext, arguments: GetCurrentConfig) -> Answer:
    run = chosen_run(context, arguments.run_id)
    inputs = required_inputs(run, FileInputs(context.target))
    fields = run_fields(known_environment(context, run, inputs), inputs.runtime)
    head = {
        "run_id": run.metadata.name,
        "environment": run.spec.environment,
        "runtime": run.spec.runtime,
        "state": state_of(run),
    }
    if arguments.field is None:
        return config_view({**head, "tip": _tip(editable=run.is_draft)}, fields, run.spec.to_wire())
    field = fields.named(arguments.field)
    kind = "locked_fields" if field.locked else "configurable_fields"
    return {**head, kind: [field_view(fields, field, run.spec.to_wire())]}


def _tip(*, editable: bool) -> str:
    if editable:
        return "rl_edit_config sets fields, null unsets one; locked values are the runtime's; `field` describes one."
    return "The run has started: its config stays; rl_select_environment drafts a new run."


MOST_TOKENS: Final = 1_400
"""Of an answer about many fields: longer ones have their texts cut. Below the 1,500 of the contract: tokenizers
differ.
"""

MOST_TOKENS_OF_NAMES: Final = 430

LONGEST_LIMIT: Final = 100
LONGEST_TEXT: Final = 2_000

FIRST: Final = frozenset({"batch_size", "group_size", "learning_rate", "loss", "max_token_length", "total_steps"})
"""What everyone asks about."""

SELDOM: Final = frozenset(
    {
        "custom_thinking_prompt",
        "data_dir_to_save_evals",
        "data_path_to_save_groups",
        "include_messages",
        "max_eval_workers",
        "max_num_workers",
        "max_num_workers_per_node",
        "max_reasoning_tokens",
        "min_batch_allocation",
        "min_items_sent_before_logging",
        "num_rollouts_per_group_for_logging",
        "num_rollouts_to_keep",
        "reasoning_effort",
        "thinking_mode",
        "wandb_name",
        "worker_timeout",
        "backend_deadline_seconds",
        "dro_beta",
        "kl_warning",
        "max_context_overflows",
        "min_ess",
        "train_attn",
        "train_mlp",
        "train_unembed",
        "wandb_samples_interval",
    }
)
"""Fields of the environment and the trainer whose defaults are rarely changed."""


def config_view(head: Mapping[str, object], fields: RunFields, spec: Spec) -> dict[str, object]:
    """`head` and as many fields as fit, the important ones first; `more` names the others."""
    ranked = sorted(fields.all, key=lambda field: _rank(field, spec))

    def first(kept: int) -> dict[str, object]:
        """So many fields, and the names of the others; `left_out`: how many did not fit even as names."""
        names = [fields.called(field) for field in ranked[kept:]]
        more = names[: _largest(len(names), lambda named: tokens(names[:named]) <= MOST_TOKENS_OF_NAMES)]
        return {
            **head,
            "configurable_fields": [_in_short(fields, field, spec) for field in ranked[:kept] if not field.locked],
            "locked_fields": [_in_short(fields, field, spec) for field in ranked[:kept] if field.locked],
            **({"more": more} if more else {}),
            **({"left_out": len(names) - len(more)} if len(names) > len(more) else {}),
        }

    return first(_largest(len(ranked), lambda kept: tokens(first(kept)) <= MOST_TOKENS))


def _in_short(fields: RunFields, field: SettableField, spec: Spec) -> dict[str, object]:
    name, current, default = fields.called(field), value_in(spec, field), redacted(field.default, field.name)
    if field.locked:
        return {"name": name, "locked_value": current}
    found = {"name": name, "type": field.type, "current_value": current}
    differs = {"default": default} if default != current else {}
    return found | differs | ({"allowed": cut(field.allowed, LONGEST_LIMIT)} if field.allowed else {})


def field_view(fields: RunFields, field: SettableField, spec: Spec) -> dict[str, object]:
    current = value_in(spec, field)
    value = {"locked_value": current} if field.locked else {"current_value": current}
    return {
        "name": fields.called(field),
        "path": field.path,
        "type": field.field.type,
        "description": cut(field.field.description, LONGEST_TEXT),
        "default": redacted(field.default, field.name),
        **value,
        **({"allowed": cut(field.allowed, LONGEST_TEXT)} if field.allowed else {}),
    }


def _rank(field: SettableField, spec: Spec) -> int:
    if field.name in FIRST or (not field.locked and value_in(spec, field) != redacted(field.default, field.name)):
        return 0
    if field.place[0] not in FREE_FORM:
        return 3
    return 2 if field.name in SELDOM else 1


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits; 0 if none does. If a number fits, so do all smaller ones."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))


TRIES: Final = 8
"""After a concurrent write (the operator writes a draft's status, too) the edit is checked again."""


class EditConfig(Arguments):
    field: str | None = Field(default=None, description="As rl_get_current_config names it.")
    value: Any = Field(default=None, description="Its new value; null unsets it.", json_schema_extra=ANY_JSON)
    values: dict[str, Any] | None = Field(default=None, description="Several fields instead: all or none.")
    run_id: OptionalRun = None


@agent_tool(
    "Change a draft's config",
    "Set fields of a draft: field and value, or values. A refusal says what is allowed.",
    "drafts",
)
def rl_edit_config(context: CallContext, arguments: EditConfig) -> Answer:
    values = _values(arguments)
    for _ in range(TRIES):
        try:
            return _edit(context, chosen_run(context, arguments.run_id), values)
        except ConflictError:
            continue
    raise ConflictError(f"someone else changed the run during each of {TRIES} tries: nothing is changed; try again")


def _values(arguments: EditConfig) -> Mapping[str, object]:
    if arguments.field is None and arguments.values:
        return arguments.values
    if arguments.field is not None and not arguments.values and "value" in arguments.model_fields_set:
        return {arguments.field: arguments.value}
    raise ToolRefusedError("give field and value (null unsets the field), or values, a mapping of several; not both")


def _edit(context: CallContext, run: TrainingRun, values: Mapping[str, object]) -> Answer:
    inputs = required_inputs(run, FileInputs(context.target))
    fields = run_fields(known_environment(context, run, inputs), inputs.runtime)
    edits, faults = edits_of(fields, values)
    _refuse_frozen(run, edits)
    try:
        wanted, refusals = _judged(context, run, inputs, edits)
    except ToolRefusedError as error:
        raise together(*faults, error) from None
    if faults:
        raise together(*faults)
    _write(context, run, wanted, refusals)
    before, after = run.spec.to_wire(), wanted.spec.to_wire()
    changes = changes_of(fields, edits, before, after)
    single = {"field": changes[0].name, "value": changes[0].after} if len(changes) == 1 else {}
    answer = {
        "message": "; ".join(change.sentence for change in changes),
        "run_id": run.metadata.name,
        "state": state_of(run),
        **single,
        "changed": [change.to_wire() for change in changes if not change.stays],
        "config": settings_of(fields, after),
        **without_empty({"refusals": wire_refusals(refusals), "warning": _warning(run)}),
    }
    return fit_tokens(answer, MOST_TOKENS)


def _write(context: CallContext, run: TrainingRun, wanted: TrainingRun, refusals: Iterable[Refusal]) -> None:
    """Raises ConflictError if someone else wrote since the run was read."""
    patch = merge_patch(run.spec.to_wire(), wanted.spec.to_wire())
    if not patch:
        return
    try:
        context.target.change_spec(*run.key, patch, version=run.metadata.resource_version)
    except InvalidError as error:
        raise refused_at_the_door(error, refusals) from None
    forget(context, run.metadata.name)


def _judged(
    context: CallContext, run: TrainingRun, inputs: RunInputs, edits: tuple[Edit, ...]
) -> tuple[TrainingRun, tuple[Refusal, ...]]:
    """The edited run and its earlier refusals that still hold. Raises ToolRefusedError for any new one."""
    wanted, known = _edited(run, edits), check_run(run, inputs)
    # An edit cannot change runtime or environment, so the inputs still hold, except for another parent.
    same_parent = wanted.spec.start_from == run.spec.start_from
    refusals = check_run(wanted, inputs if same_parent else required_inputs(wanted, FileInputs(context.target)))
    if new := [refusal for refusal in refusals if refusal not in known]:
        raise refused(*new)
    return wanted, refusals


def _edited(run: TrainingRun, edits: tuple[Edit, ...]) -> TrainingRun:
    """Raises ToolRefusedError for a value that does not fit the run's kind."""
    document = run.to_wire()
    try:
        return parse_run({**document, "spec": with_edits(document["spec"], edits)})
    except DocumentError as error:
        raise refused(*error.refusals) from None


def _refuse_frozen(run: TrainingRun, edits: tuple[Edit, ...]) -> None:
    """Before the write, also where no admission policy enforces it."""
    name = run.metadata.name
    if run.status.finished and any(edit.field.place != ("ttlSecondsAfterFinished",) for edit in edits):
        raise ToolRefusedError(
            f"{name} is over ({state_of(run)}): rl_select_environment drafts a new run, and its start_from may be "
            f'{{"run": "{name}"}}'
        )
    frozen = [f"spec.{'.'.join(edit.field.place)}" for edit in edits if edit.field.place[0] in FROZEN_FIELDS]
    if run.status.start_time is not None and frozen:
        hint = f"{FROZEN} (rl_select_environment)"
        raise refused(*(Refusal(code="FrozenField", field=field, hint=hint) for field in frozen))


def _warning(run: TrainingRun) -> str | None:
    if owner := gitops_owner(run.to_wire()):
        return f"{owner} keeps this run as its source says, and reverts what the source sets: change it there, too"
    if not run.spec.suspend and not run.is_refused and run.status.queue is None:
        return "this run was just started: the edit may come too late; rl_get_current_config shows what it trains"
    return None
