"""`POST /rl/rollouts`: environments report rollouts that are not trained.

A budget says how much environments may report: reading a report holds up the trainer's loop, which samples, too.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.chat.request_handling import RefusedRequestError, Told, guarded, limited_body, validated
from tinker_atropos.serving import json_response
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter

MEGABYTE: Final = 2**20

AT_ONCE_BYTES: Final = 256 * MEGABYTE
"""The answers of a large evaluation: 500 of 8,000 tokens each, with what is said about each token."""

PER_SECOND_BYTES: Final = 2 * MEGABYTE
"""Reading takes 8 ms a megabyte, 20 at worst (tests/benchmarks/rollout_files_bench.py): 2 to 4 % of the loop's time."""

LEAST_BYTES: Final = 2**16
"""What a report counts for at least: each is a request, too."""

MAX_BRACKETS: Final = 2**18
"""Opening brackets in a report, also those in texts: 8 MiB of empty lists would take a second to read."""

BRACKET_BYTES: Final = 48
"""A list or an object takes as long to read as so many bytes of tokens."""

MAX_SENDERS: Final = 64
"""Addresses that have a budget of their own; others share one."""


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


@dataclass(slots=True)
class ReportBudget:
    """The budget of all environments of a run, by their address: what they say of themselves may be wrong. `clock` in
    seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _senders: dict[str, _Allowance] = field(default_factory=dict)

    def spend(self, address: str, body: bytes) -> None:
        """Raises RefusedRequestError: 413 for a report that would take long to read, 429 if too much was reported."""
        if (brackets := body.count(b"[") + body.count(b"{")) > MAX_BRACKETS:
            sentence = f"the report has {brackets} lists and objects; the limit is {MAX_BRACKETS}: leave out messages"
            raise RefusedRequestError(sentence, status=413)
        sender, cost = self._sender(address), max(len(body) + brackets * BRACKET_BYTES, LEAST_BYTES)
        if sender.left < cost:
            raise RefusedRequestError(
                f"too many rollouts are reported: {AT_ONCE_BYTES // MEGABYTE} MB at once, and "
                f"{PER_SECOND_BYTES // MEGABYTE} MB a second, are the most. These are not kept. Report fewer, or try "
                f"again in {(cost - sender.left) / PER_SECOND_BYTES:.0f} s",
                status=429,
            )
        sender.left -= cost

    def _sender(self, address: str) -> _Allowance:
        now = self.clock()
        if address not in self._senders and len(self._senders) >= MAX_SENDERS:
            address = ""
        sender = self._senders.setdefault(address, _Allowance(AT_ONCE_BYTES, now))
        sender.left = min(AT_ONCE_BYTES, sender.left + (now - sender.at) * PER_SECOND_BYTES)
        sender.at = now
        return sender


ROOM_SECONDS: Final = 5.0
"""How long a report waits until those before it are written. Environments give an answer twice as long."""

MOST_WAITING: Final = 4
"""Reports that wait for room: each holds up to 8 MiB."""


def report_route(
    keeper: RolloutWriter,
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


async def _room(keeper: RolloutWriter) -> None:
    """An evaluation's answers come faster than they are written: whoever sends them waits, and nothing is lost."""
    give_up = time.monotonic() + ROOM_SECONDS
    while not keeper.takes_reports and time.monotonic() < give_up:
        await asyncio.sleep(0.02)
