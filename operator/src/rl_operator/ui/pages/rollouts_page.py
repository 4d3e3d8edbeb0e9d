"""The rollouts of a step: what became of every token, and every group of it."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import OperatorError, RefusedError
from rl_operator.rollouts.rollout_query import newest_finished
from rl_operator.rollouts.rollout_source import RolloutSteps, StepFiles
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_text import flags_for
from rl_operator.targets.target import Target
from rl_operator.ui.ui_context import asked, context_of, run_key, visitor_of
from rl_operator.ui.views.rollout_address import RolloutAddress, read_address
from rl_operator.ui.views.rollout_step import step_values
from rl_operator.ui.views.step_groups import HeldFiles, chosen_lines, read_groups, search_steps

LARGE_BYTES: Final = 2_000_000
"""Of a step's files, compressed. 128 rollouts of 512 tokens have 0.5 million."""


@dataclass(frozen=True)
class KeptRollouts:
    """The rollouts of a run. `steps` None: there are none, and `why` says so."""

    run: TrainingRun
    steps: RolloutSteps | None
    why: str = ""


async def show_rollouts(request: Request) -> Response:
    context, target = context_of(request), visitor_of(request).target
    address, faults = read_address(request.query_params)
    kept = await asked(_kept, target, *run_key(request))
    flags = flags_for(target, kept.run.metadata.namespace)
    shared = {"title": f"Rollouts of {kept.run.metadata.name}", "run": kept.run, "faults": faults, "flags": flags}
    if kept.steps is None:
        return context.page(request, "no_rollouts.html", {**shared, "why": kept.why})
    steps = kept.steps

    def page() -> Response:
        """Made where the step is read: what was read takes more memory than the page."""
        step = _fetched(steps, address)
        is_large = step or max(files.bytes for files in steps.steps.values()) > LARGE_BYTES
        return context.page_maker.submit(made, step).result() if is_large else made(step)

    def made(step: HeldStep | None) -> Response:
        if step is None:
            values = step_values(steps, None, address, search_steps(steps, address, time.monotonic))
        else:
            values = step_values(steps, read_groups(*step, address), address, None)
        return context.page(request, "rollouts.html", {**shared, **values, "where": steps.source.where})

    try:
        return await asyncio.get_running_loop().run_in_executor(context.readers, page)
    except RefusedError as error:
        newest = list(steps.steps)[-1:]
        return context.page(request, "no_rollouts.html", {**shared, "why": str(error), "steps": newest}, 404)


async def show_newest(request: Request) -> Response:
    """The number of the newest step that is kept; nothing if there is none. A script asks for it."""
    target = visitor_of(request).target
    kept = await asked(_kept, target, *run_key(request))
    return PlainTextResponse(str(max(kept.steps.steps, default="")) if kept.steps else "")


async def download(request: Request) -> Response:
    """The lines of a step, or of the groups that are asked for, as they are in the files."""
    target = visitor_of(request).target
    address, faults = read_address(request.query_params)
    if faults:
        raise RefusedError("; ".join(faults))
    kept = await asked(_kept, target, *run_key(request))
    if kept.steps is None:
        raise RefusedError(kept.why)
    reading = partial(_files, kept.steps, address)
    files = await asyncio.get_running_loop().run_in_executor(context_of(request).readers, reading)
    name = f"{kept.run.metadata.name}-step-{files.step}.jsonl"
    return _Download(
        chosen_lines(kept.steps.source, files, address),
        context_of(request).downloads,
        media_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


class _Download(StreamingResponse):
    """Begins when it is its turn: the first line is read then."""

    def __init__(self, lines: Iterator[bytes], limiter: anyio.CapacityLimiter, **options: Any) -> None:
        super().__init__(lines, **options)
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._limiter:
            await super().__call__(scope, receive, send)


def _kept(target: Target, namespace: str, name: str) -> KeptRollouts:
    run = TrainingRun.model_validate(existing_run(target, namespace, name))
    try:
        steps = RolloutSteps.of(target.rollouts(run))
    except OperatorError as error:
        return KeptRollouts(run, None, str(error))
    if not steps.steps:
        return KeptRollouts(run, None, _why_none(run, steps.source.where))
    return KeptRollouts(run, steps)


def _why_none(run: TrainingRun, where: str) -> str:
    if not run.status.finished:
        return f"There are none in {where} yet: they are there when the first step is trained."
    return (
        f"There are none in {where}: the run trained nothing, kept none (trainer.keep_rollouts_mb is 0, or the "
        f"disk was full), or an older version trained it. Its log says more."
    )


def _files(steps: RolloutSteps, address: RolloutAddress) -> StepFiles:
    return newest_finished(steps) if address.step is None else steps.step(address.step)


HeldStep = tuple[HeldFiles, StepFiles]


def _fetched(steps: RolloutSteps, address: RolloutAddress) -> HeldStep | None:
    """The step that is asked for; None: all are searched. Raises RefusedError for one that there is not."""
    if address.q and address.scope == "all":
        return None
    files = _files(steps, address)
    held = HeldFiles(steps.source)
    held.keep(files)
    return held, files


_BELOW: Final = "/runs/{namespace}/{name}"
ROUTES: Final = [
    Route(_BELOW + "/rollouts", show_rollouts),
    Route(_BELOW + "/rollouts.jsonl", download),
    Route(_BELOW + "/rollouts/newest", show_newest),
]
