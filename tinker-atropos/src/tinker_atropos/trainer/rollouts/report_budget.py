"""How much environments may report: reading a report holds up the trainer's loop, which samples, too."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tinker_atropos.chat.request_handling import RefusedRequestError

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
    """Of all environments of a run, by their address: what they say of themselves may be wrong. `clock` in seconds."""

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
