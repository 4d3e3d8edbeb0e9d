"""What a caller's run is checked against, and the result: the operator's own rules, applied before a write."""

from collections.abc import Iterable
from typing import Final

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.names import OWN_PREFIX
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.name_lists import most_alike, outlined
from rl_operator.check.run_check import check_run
from rl_operator.operator_errors import ForbiddenError, InvalidError, RefusedError
from rl_operator.targets.inputs.file_inputs import choose_runtime
from rl_operator.tools.agent_tool import Answer, ToolRefusedError
from rl_operator.tools.answers.run_status import refusal_of
from rl_operator.tools.call_context import CallContext

MOST_SENTENCES: Final = 3


def runtime_for(context: CallContext, name: str | None) -> Runtime:
    """The named one, else the default or the only one. Raises ToolRefusedError."""
    try:
        return choose_runtime(context.target, name or "")
    except RefusedError as error:
        raise ToolRefusedError(
            str(error), available=most_alike(name or "", sorted(context.target.runtimes()))
        ) from None


def known_environment(context: CallContext, run: TrainingRun, inputs: RunInputs) -> CatalogEnvironment:
    """What `spec.environment` refers to. Raises ToolRefusedError: to nothing, or to nothing yet."""
    chosen = inputs.environment
    if chosen.known is not None:
        return chosen.known
    if chosen.pending is not None:
        raise ToolRefusedError(f"{chosen.pending[1]} Ask again in a few seconds.", retryable=True)
    named, known = run.spec.environment, [*chosen.available, *own_names(context)]
    library = named.partition("/")[0] in {name.partition("/")[0] for name in chosen.available if "/" in name}
    available = most_alike(named, known if library else outlined(known))
    raise refused(*check_run(run, inputs), available=available)


def own_names(context: CallContext) -> list[str]:
    """`own/NAME` of the namespace's RLEnvironments that the caller may read."""
    try:
        return [f"{OWN_PREFIX}{each.metadata.name}" for each in context.target.environments(context.namespace)]
    except ForbiddenError:
        return []


def refused(*refusals: Refusal, **details: object) -> ToolRefusedError:
    """At least one refusal, in the form for agents."""
    more = len(refusals) - MOST_SENTENCES
    sentences = [refusal.sentence for refusal in refusals[:MOST_SENTENCES]]
    sentences += [f"and {more} more"] if more > 0 else []
    locked = [refusal.locked for refusal in refusals if refusal.code == "LockedField"]
    lock = {"locked_value": locked[0]} if len(locked) == 1 else {}
    return ToolRefusedError("; ".join(sentences), **lock, **details, refusals=wire_refusals(refusals))


def together(*errors: ToolRefusedError) -> ToolRefusedError:
    """At least one, as one: every sentence; of details that several have, the first one's."""
    if len(errors) == 1:
        return errors[0]
    details = {name: detail for error in reversed(errors) for name, detail in error.details.items()}
    return ToolRefusedError("; ".join(map(str, errors)), **details)


def refused_at_the_door(error: InvalidError, refusals: Iterable[Refusal] = ()) -> ToolRefusedError:
    """By the API server, whose policies check the whole run whatever was changed: `refusals` are the likely reasons."""
    words = str(error).rpartition(" denied request: ")[2]
    known = {"refusals": wires} if (wires := wire_refusals(refusals)) else {}
    return ToolRefusedError(f"the API server rejected the run: {words}", **known)


def wire_refusals(refusals: Iterable[Refusal]) -> list[Answer]:
    return [*map(refusal_of, refusals)]
