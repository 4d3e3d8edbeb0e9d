"""From an agent's name for a run to the run, and from the run's phase to the states that agents know."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from rl_operator import __version__
from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import DRAFTED_AT_ANNOTATION, DRAFTED_BY_LABEL
from rl_operator.api.status_fields import SUSPENDED_PHASES, Phase
from rl_operator.api.training_run import TrainingRun
from rl_operator.tools.agent_tool import NoSuchRunError, ToolRefusedError
from rl_operator.tools.call_context import CallContext

STATES: Final[Mapping[Phase, str]] = {
    "Draft": "draft",
    "Pending": "pending",
    "Starting": "starting",
    "Running": "running",
    "Stopping": "stopping",
    "Stopped": "stopped",
    "Succeeded": "completed",
    "Failed": "failed",
}
ACTIVE: Final = frozenset({"pending", "starting", "running", "stopping"})

SHOWN_RUNS: Final = 10
_SHORT_ID: Final = re.compile("[0-9a-f]{8}")


def state_of(run: TrainingRun) -> str:
    """draft, pending, starting, running, stopping, stopped, completed or failed."""
    if run.is_draft:
        return STATES["Draft"]
    phase = run.status.phase or "Pending"
    if not run.is_looked_at and not run.status.finished:
        phase = _asked(run, phase)
    return STATES[phase]


def _asked(run: TrainingRun, phase: Phase) -> Phase:
    """What `spec.suspend` requests and has not been reconciled yet."""
    if run.spec.suspend:
        return phase if phase in SUSPENDED_PHASES else "Stopping"
    return "Pending" if phase in SUSPENDED_PHASES else phase


def named_run(context: CallContext, run_id: str) -> TrainingRun:
    """By the object's name, or by its last eight characters if they are unique.

    Raises NoSuchRunError with `active_runs`, ToolRefusedError if they are ambiguous.
    """
    manifest = context.target.run(context.namespace, run_id)
    if manifest is not None:
        return _understood(manifest)
    runs = sorted(each_readable(context.target.runs(context.namespace, ""), []), key=age_order, reverse=True)
    short = [run for run in runs if _SHORT_ID.fullmatch(run_id) and run.metadata.name.endswith(f"-{run_id}")]
    if len(short) == 1:
        return short[0]
    if short:
        names = [run.metadata.name for run in short]
        raise ToolRefusedError(f"{run_id} is the end of several runs' names: {', '.join(names)}", available=names)
    active = [run.metadata.name for run in runs if state_of(run) in ACTIVE]
    hint = "rl_list_runs lists all" if runs else "there is none yet; rl_select_environment drafts one"
    raise NoSuchRunError(
        f"there is no run {run_id!r} in namespace {context.namespace} of {context.target.label}; {hint}",
        active_runs=active[:SHOWN_RUNS],
    )


def _understood(manifest: Manifest) -> TrainingRun:
    try:
        return TrainingRun.model_validate(manifest)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(map(str, fault["loc"]))
        raise ToolRefusedError(
            f"run {manifest['metadata']['name']} is of a kind that rl-operator {__version__} does not understand "
            f"({field}: {fault['msg']}): use the version that the cluster's operator has"
        ) from None


def latest_drafted(context: CallContext) -> TrainingRun:
    """The caller's latest draft, whether or not it has started since. Raises ToolRefusedError."""
    found = context.target.runs(context.namespace, f"{DRAFTED_BY_LABEL}={context.caller}")
    drafted = list(each_readable(found, []))
    if not drafted:
        raise ToolRefusedError(
            "you have drafted no run yet: call rl_select_environment with the name of an environment, or give run_id"
        )
    return max(drafted, key=_drafted_at)


def chosen_run(context: CallContext, run_id: str | None) -> TrainingRun:
    """The named one; without a name the caller's latest draft."""
    return named_run(context, run_id) if run_id else latest_drafted(context)


def each_readable(manifests: Iterable[Manifest], others: list[str]) -> Iterator[TrainingRun]:
    """One after the other. The names of those that this version cannot parse are added to `others`: a newer operator's
    kind may have fields that it does not know. One such run must not hide the others.
    """
    for manifest in manifests:
        try:
            yield TrainingRun.model_validate(manifest)
        except ValidationError:
            others.append(manifest["metadata"]["name"])


def age_order(run: TrainingRun) -> tuple[str, str]:
    """The newest has the largest."""
    return run.metadata.creation_timestamp or "", run.metadata.name


def _drafted_at(run: TrainingRun) -> tuple[str, str]:
    """The API server's times are in whole seconds; two drafts may be from the same one."""
    return run.metadata.annotations.get(DRAFTED_AT_ANNOTATION, ""), run.metadata.name
