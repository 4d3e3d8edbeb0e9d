"""rl_get_current_config: what a run sets, and what it may set.

A run's config for an agent: few tokens, and every omitted field is named. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from rl_operator.api.refusal import redacted
from rl_operator.status.text.sentences import cut
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, OptionalRun
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.drafts.draft_check import inputs_for, known_environment
from rl_operator.tools.drafts.edits import Spec, value_in
from rl_operator.tools.drafts.field_names import FREE_FORM, RunField, RunFields, run_fields
from rl_operator.tools.runs import chosen_run, is_draft, state_of


class GetCurrentConfig(Arguments):
    run_id: OptionalRun = None
    field: str | None = Field(default=None, description="This one alone, with its meaning.")


def get_current_config(context: CallContext, arguments: GetCurrentConfig) -> Answer:
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


TOOLS: tuple[AgentTool, ...] = (
    AgentTool(
        name="rl_get_current_config",
        title="Show a run's config",
        description="Every field that may be set, with value, limits and locks.",
        arguments=GetCurrentConfig,
        call=get_current_config,
        effect="reads",
    ),
)


MOST_TOKENS: Final = 1_400
"""Below the 1,500 of the contract: tokenizers differ."""

MOST_TOKENS_OF_NAMES: Final = 400

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


def config_view(head: Mapping[str, object], fields: RunFields, spec: Spec) -> dict[str, Any]:
    """`head` and as many fields as fit, the important ones first; `more` names the others."""
    view = _View(head, fields, spec, sorted(fields.all, key=lambda field: _rank(field, spec)))
    return view.cut(_largest(len(fields.all), lambda kept: tokens(view.cut(kept)) <= MOST_TOKENS))


@dataclass(frozen=True)
class _View:
    head: Mapping[str, Any]
    fields: RunFields
    spec: Spec
    ranked: Sequence[RunField]

    def cut(self, kept: int) -> dict[str, Any]:
        """The first `kept` fields, and the names of the others; `left_out`: how many did not fit even as names."""
        shown_fields = self.ranked[:kept]
        names = [self.fields.called(field) for field in self.ranked[kept:]]
        more = names[: _largest(len(names), lambda named: tokens(names[:named]) <= MOST_TOKENS_OF_NAMES)]
        return {
            **self.head,
            "configurable_fields": [self._settable(field) for field in shown_fields if not field.locked],
            "locked_fields": [self._locked(field) for field in shown_fields if field.locked],
            **({"more": more} if more else {}),
            **({"left_out": len(names) - len(more)} if len(names) > len(more) else {}),
        }

    def _settable(self, field: RunField) -> dict[str, Any]:
        current, default = value_in(self.spec, field), redacted(field.default, field.name)
        found = {"name": self.fields.called(field), "type": field.type, "current_value": current}
        differs = {"default": default} if default != current else {}
        limits = {"allowed": cut(field.allowed, LONGEST_LIMIT)} if field.allowed else {}
        return found | differs | limits

    def _locked(self, field: RunField) -> dict[str, Any]:
        return {"name": self.fields.called(field), "locked_value": value_in(self.spec, field)}


def field_view(fields: RunFields, field: RunField, spec: Spec) -> dict[str, Any]:
    """All that is known about one field."""
    current = value_in(spec, field)
    value = {"locked_value": current} if field.locked else {"current_value": current}
    return {
        "name": fields.called(field),
        "path": field.path,
        "type": field.annotation,
        "description": cut(field.description, LONGEST_TEXT),
        "default": redacted(field.default, field.name),
        **value,
        **({"allowed": cut(field.allowed, LONGEST_TEXT)} if field.allowed else {}),
    }


def _rank(field: RunField, spec: Spec) -> int:
    if field.name in FIRST or (not field.locked and value_in(spec, field) != redacted(field.default, field.name)):
        return 0
    if field.place[0] not in FREE_FORM:
        return 3
    return 2 if field.name in SELDOM else 1


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits; 0 if none does. If a number fits, so do all smaller ones."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
