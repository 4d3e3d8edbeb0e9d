"""One run against its inputs."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from rl_operator.api.identity import Same
from rl_operator.api.refusal import Refusal, first_refusals, redacted
from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime
from rl_operator.check.field_rules import field_refusals
from rl_operator.check.lineage import lineage_refusals
from rl_operator.check.name_lists import MOST_NAMES, listed
from rl_operator.check.run_rules import (
    adapter_refusals,
    budget_refusals,
    environment_refusals,
    inherited_bound_refusals,
    limit_refusals,
    pasted_key_refusals,
    shared_field_refusals,
)
from rl_operator.check.runtime_access import namespace_refusals, secret_refusals
from rl_operator.check.runtime_rules import check_runtime
from rl_operator.check.sandbox_rules import sandbox_refusals
from rl_operator.check.subject import Subject
from rl_operator.documents.parse import nearest

MAX_REPORTED: Final = 3
"""How many refusals a status repeats; `rlctl validate` shows all that are found."""

_RULES: Final[tuple[Callable[[Subject], Iterable[Refusal]], ...]] = (
    environment_refusals,
    field_refusals,
    inherited_bound_refusals,
    shared_field_refusals,
    adapter_refusals,
    lineage_refusals,
    namespace_refusals,
    secret_refusals,
    limit_refusals,
    budget_refusals,
    sandbox_refusals,
    pasted_key_refusals,
)


def check_run(run: TrainingRun, inputs: RunInputs) -> tuple[Refusal, ...]:
    """Why the run must not start, in a stable order: at most `MAX_REFUSALS` reasons; empty means accepted."""
    if faults := _runtime_faults(Same(inputs.runtime)):
        return (runtime_invalid(run, faults[0]),)
    subject = Subject(run, inputs)
    return first_refusals(refusal for rule in _RULES for refusal in rule(subject))


@lru_cache(maxsize=64)
def _runtime_faults(runtime: Same[Runtime]) -> tuple[Refusal, ...]:
    """The same for all of its runs."""
    return check_runtime(runtime.model)


def runtime_invalid(run: TrainingRun, fault: Refusal) -> Refusal:
    """The refusal of a run whose runtime is invalid; `fault` is the first one found in it."""
    hint = f"this RLRuntime cannot be used until an administrator fixes it: {fault.sentence}"
    return Refusal(code="RuntimeInvalid", field="spec.runtime", given=redacted(run.spec.runtime), hint=hint)


def runtime_not_found(run: TrainingRun, names: Iterable[str]) -> Refusal:
    """The refusal of a run whose runtime does not exist; `names` are those that do."""
    available = sorted(names)
    listing = f"available: {listed(available)}" if available else "there is none yet: an administrator creates it"
    return Refusal(
        code="RuntimeNotFound",
        field="spec.runtime",
        given=redacted(run.spec.runtime),
        allowed=available[:MOST_NAMES],
        hint=f"there is no such RLRuntime{nearest(run.spec.runtime, available)} ({listing})",
    )
