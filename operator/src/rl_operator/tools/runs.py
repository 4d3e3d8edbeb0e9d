"""From what an agent calls a run to the run, and from the run's phase to the words that agents know."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rl_operator.api.names import DRAFTED_AT_ANNOTATION, DRAFTED_BY_LABEL
from rl_operator.api.run import Phase, TrainingRun
from rl_operator.tools.desk import Desk
from rl_operator.tools.tool import NotFoundError, ToolRefusedError

STATES: Final[Mapping[Phase, str]] = {
    "Pending": "pending",
    "Starting": "starting",
    "Running": "running",
    "Stopping": "stopping",
    "Stopped": "stopped",
    "Succeeded": "completed",
    "Failed": "failed",
}
DRAFT: Final = "draft"
ACTIVE: Final = frozenset({"pending", "starting", "running", "stopping"})

SHOWN_RUNS: Final = 10
_SHORT_ID: Final = re.compile("[0-9a-f]{8}")


def is_draft(run: TrainingRun) -> bool:
    """It has never started, and waits to be asked."""
    return run.spec.suspend and run.status.start_time is None


def state_of(run: TrainingRun) -> str:
    """draft, pending, starting, running, stopping, stopped, completed or failed."""
    if is_draft(run):
        return DRAFT
    phase = run.status.phase or "Pending"
    if not run.is_looked_at and not run.status.finished:
        phase = _asked(run, phase)
    return STATES[phase]


def _asked(run: TrainingRun, phase: Phase) -> Phase:
    """What `spec.suspend` asks for and nobody has looked at yet."""
    if run.spec.suspend:
        return phase if phase == "Stopped" else "Stopping"
    return "Pending" if phase == "Stopped" else phase


def named_run(desk: Desk, run_id: str) -> TrainingRun:
    """By the object's name, or its last eight characters where one run alone ends so.

    Raises NotFoundError with `active_runs`, ToolRefusedError where several end so.
    """
    manifest = desk.backend.run(desk.namespace, run_id)
    if manifest is not None:
        return TrainingRun.model_validate(manifest)
    runs = all_runs(desk)
    short = [run for run in runs if _SHORT_ID.fullmatch(run_id) and run.metadata.name.endswith(f"-{run_id}")]
    if len(short) == 1:
        return short[0]
    if short:
        names = [run.metadata.name for run in short]
        raise ToolRefusedError(f"{run_id} is the end of several runs' names: {', '.join(names)}", available=names)
    active = [run.metadata.name for run in runs if state_of(run) in ACTIVE]
    hint = "rl_list_runs lists all" if runs else "there is none yet; rl_select_environment drafts one"
    raise NotFoundError(
        f"there is no run {run_id!r} in namespace {desk.namespace} of {desk.backend.label}; {hint}",
        active_runs=active[:SHOWN_RUNS],
    )


def latest_drafted(desk: Desk) -> TrainingRun:
    """What the caller drafted last, whether or not it has started since. Raises ToolRefusedError."""
    found = desk.backend.runs(desk.namespace, f"{DRAFTED_BY_LABEL}={desk.caller}")
    if not found:
        raise ToolRefusedError(
            "you have drafted no run yet: call rl_select_environment with the name of an environment, or give run_id"
        )
    return max(map(TrainingRun.model_validate, found), key=_drafted_at)


def chosen_run(desk: Desk, run_id: str | None) -> TrainingRun:
    """The named one; without a name what the caller drafted last."""
    return named_run(desk, run_id) if run_id else latest_drafted(desk)


def all_runs(desk: Desk) -> list[TrainingRun]:
    """Newest first."""
    runs: Iterable[TrainingRun] = map(TrainingRun.model_validate, desk.backend.runs(desk.namespace, ""))
    return sorted(runs, key=lambda run: (run.metadata.creation_timestamp or "", run.metadata.name), reverse=True)


def _drafted_at(run: TrainingRun) -> tuple[str, str]:
    """The API server's times are of whole seconds; two drafts may be of one."""
    return run.metadata.annotations.get(DRAFTED_AT_ANNOTATION, ""), run.metadata.name
