"""rl_get_current_config: what a run sets, and what it may."""

from pydantic import Field

from rl_operator.tools.config_view import config_view, field_view
from rl_operator.tools.draft_check import inputs_for, known_environment
from rl_operator.tools.field_names import run_fields
from rl_operator.tools.runs import chosen_run, is_draft, state_of
from rl_operator.tools.tool import Answer, Arguments, Tool
from rl_operator.tools.tool_context import ToolContext


class GetCurrentConfig(Arguments):
    run_id: str | None = Field(
        default=None, max_length=63, description="The run's name or its last eight characters; default: your latest."
    )
    field: str | None = Field(default=None, description="One field alone, with its description.")


def get_current_config(context: ToolContext, arguments: GetCurrentConfig) -> Answer:
    run = chosen_run(context, arguments.run_id)
    inputs = inputs_for(context, run)
    fields = run_fields(known_environment(context, run, inputs), inputs.runtime)
    head = {
        "run_id": run.metadata.name,
        "environment": run.spec.environment,
        "runtime": run.spec.runtime,
        "state": state_of(run),
    }
    if arguments.field is None:
        return config_view({**head, "tip": _tip(editable=is_draft(run))}, fields, run.spec.to_wire())
    field = fields.named(arguments.field)
    kind = "locked_fields" if field.locked else "configurable_fields"
    return {**head, kind: [field_view(fields, field, run.spec.to_wire())]}


def _tip(*, editable: bool) -> str:
    if editable:
        return "rl_edit_config sets fields, null unsets one; locked values are the runtime's; `field` describes one."
    return "The run has started: its config stays; rl_select_environment drafts a new run."


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="rl_get_current_config",
        title="Show a run's config",
        description=(
            "Every field of a run that may be set, with its value, limits and locks. With field: that one alone, and "
            "what it means."
        ),
        arguments=GetCurrentConfig,
        call=get_current_config,
        effect="reads",
    ),
)
