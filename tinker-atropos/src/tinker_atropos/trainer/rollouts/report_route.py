"""`POST /rl/rollouts`: environments report rollouts that are not trained."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.chat.request_handling import RefusedRequestError, Told, guarded, limited_body, validated
from tinker_atropos.serving import json_response
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.rollouts.report_budget import ReportBudget
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_keeper import RolloutKeeper

ROOM_SECONDS: Final = 5.0
"""How long a report waits until those before it are written. Environments give an answer twice as long."""

MOST_WAITING: Final = 4
"""Reports that wait for room: each holds up to 8 MiB."""


def report_route(
    keeper: RolloutKeeper,
    policy: CurrentPolicy,
    *,
    vocabulary: int,
    total_steps: int,
    clock: Callable[[], float] = time.monotonic,
) -> Route:
    """`vocabulary` is the number of the model's token ids. What is reported after the last step is of that step.

    A report is read on the loop: in a thread it would hold the interpreter's lock all the same.
    """
    budget, waiting = ReportBudget(clock), asyncio.Semaphore(MOST_WAITING)

    async def take_report(request: Request) -> Response:
        body = await limited_body(request)
        try:
            budget.spend(request.client.host if request.client else "", body)
        except RefusedRequestError:
            keeper.refused()
            raise
        if not waiting.locked():
            async with waiting:
                await _room(keeper)
        report = validated(RolloutReport, body)
        for index, untrained in enumerate(report.groups):
            if wrong := untrained.group.outside_vocabulary(vocabulary):
                raise RefusedRequestError(f"groups[{index}].group: {wrong}", field="groups")
            if untrained.step is not None and untrained.step > total_steps:
                sentence = f"groups[{index}].step is {untrained.step}; the run has the steps 0 to {total_steps}"
                raise RefusedRequestError(sentence, field="groups")
        trained = policy.latest.step if policy.latest else 0
        keeper.reported(report, collecting=min(trained + 1, total_steps))
        return json_response({})

    return Route("/rl/rollouts", guarded(take_report, Told()), methods=["POST"])


async def _room(keeper: RolloutKeeper) -> None:
    """An evaluation's answers come faster than they are written: whoever sends them waits, and nothing is lost."""
    give_up = time.monotonic() + ROOM_SECONDS
    while not keeper.takes_reports and time.monotonic() < give_up:
        await asyncio.sleep(0.02)
