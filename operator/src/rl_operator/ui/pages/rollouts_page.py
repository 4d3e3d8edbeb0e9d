"""The rollouts of a step: what became of every token, and every group of it."""

import time
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rl_operator.api.run import TrainingRun
from rl_operator.errors import OperatorError, RefusedError
from rl_operator.rollouts.rollout_query import RolloutSteps, newest_finished
from rl_operator.rollouts.rollout_source import LastFile, RolloutSource
from rl_operator.rollouts.step_files import StepFiles
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.target import Target
from rl_operator.ui.ui_context import asked, context_of, visitor_of
from rl_operator.ui.views.rollouts.rollout_address import RolloutAddress, read_address
from rl_operator.ui.views.rollouts.rollout_step import step_values
from rl_operator.ui.views.rollouts.step_groups import chosen_lines, read_groups
from rl_operator.ui.views.rollouts.step_search import search_steps

READERS: Final = BoundedSemaphore(3)
"""Steps that are read at once: each may be large, and takes memory while it is read."""


@dataclass(frozen=True)
class KeptRollouts:
    """Of a run. `source` None: there are none, and `why` says so."""

    run: TrainingRun
    source: RolloutSource | None
    steps: RolloutSteps | None
    why: str = ""


async def show_rollouts(request: Request) -> Response:
    context, target = context_of(request), visitor_of(request).target
    address, faults = read_address(request.query_params)
    kept = await asked(_kept, target, request.path_params["namespace"], request.path_params["name"])
    shared = {"title": f"Rollouts of {kept.run.metadata.name}", "run": kept.run, "faults": faults}
    if kept.source is None or kept.steps is None:
        return context.page(request, "no_rollouts.html", {**shared, "why": kept.why})
    try:
        values = await asked(_read, kept.source, kept.steps, address)
    except RefusedError as error:
        steps = list(kept.steps.steps)
        return context.page(request, "no_rollouts.html", {**shared, "why": str(error), "steps": steps[-1:]}, 404)
    return context.page(request, "rollouts.html", {**shared, **values, "where": kept.source.where})


async def show_newest(request: Request) -> Response:
    """The number of the newest step that is kept; nothing if there is none. A script asks for it."""
    target = visitor_of(request).target
    kept = await asked(_kept, target, request.path_params["namespace"], request.path_params["name"])
    return PlainTextResponse(str(max(kept.steps.steps, default="")) if kept.steps else "")


async def download(request: Request) -> Response:
    """The lines of a step, or of the groups that are asked for, as they are in the files."""
    target = visitor_of(request).target
    address, faults = read_address(request.query_params)
    if faults:
        raise RefusedError("; ".join(faults))
    kept = await asked(_kept, target, request.path_params["namespace"], request.path_params["name"])
    if kept.source is None or kept.steps is None:
        raise RefusedError(kept.why)
    source = LastFile(kept.source)
    files = await asked(_files, source, kept.steps, address)
    name = f"{kept.run.metadata.name}-step-{files.step}.jsonl"
    return StreamingResponse(
        chosen_lines(source, files, address),
        media_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _kept(target: Target, namespace: str, name: str) -> KeptRollouts:
    run = TrainingRun.model_validate(existing_run(target, namespace, name))
    try:
        source = target.rollouts(run)
        steps = RolloutSteps.of(source)
    except OperatorError as error:
        return KeptRollouts(run, None, None, str(error))
    if not steps.steps:
        return KeptRollouts(run, None, None, _why_none(run, source))
    return KeptRollouts(run, source, steps)


def _why_none(run: TrainingRun, source: RolloutSource) -> str:
    if not run.status.finished:
        return f"There are none in {source.where} yet: they are there when the first step is trained."
    return (
        f"There are none in {source.where}: the run trained nothing, kept none (tinker.keep_rollouts_mb is 0, or the "
        f"disk was full), or an older version trained it. Its log says more."
    )


def _files(source: RolloutSource, steps: RolloutSteps, address: RolloutAddress) -> StepFiles:
    return newest_finished(source, steps) if address.step is None else steps.step(address.step)


def _read(source: RolloutSource, steps: RolloutSteps, address: RolloutAddress) -> dict[str, Any]:
    """Raises RefusedError for a step that there is not."""
    with READERS:
        remembered = LastFile(source)
        if address.q and address.scope == "all":
            found = search_steps(remembered, steps, address, time.monotonic)
            return step_values(steps, None, address, found)
        files = _files(remembered, steps, address)
        return step_values(steps, read_groups(remembered, files, address), address, None)


_BELOW: Final = "/runs/{namespace}/{name}"
ROUTES: Final = [
    Route(_BELOW + "/rollouts", show_rollouts),
    Route(_BELOW + "/rollouts.jsonl", download),
    Route(_BELOW + "/rollouts/newest", show_newest),
]
