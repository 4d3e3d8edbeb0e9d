"""Where an environment's sandboxes come from: pods, if its run has them, or this machine. And whose turn it is where
there are fewer sandboxes than rollouts, and how long rollouts wait for theirs.
"""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from tinker_atropos.environments.agents.toolbox import ReservedSandbox, Toolbox
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.local_pool import LocalSandbox, LocalSandboxes
from tinker_atropos.sandboxes.pod_pool import PodSandboxes
from tinker_atropos.sandboxes.sandbox import NotIsolatedError, SandboxLimits, SandboxPool
from tinker_atropos.settings import load_settings

Place = Literal["local", "kubernetes"]

IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""A variable of every container of a cluster. There the trainer's ports are near."""

NO_PODS: Final = (
    "env.terminal_backend is 'kubernetes', and this process has no sandboxes in pods (RL_SANDBOX_HOST is not set): set "
    "spec.sandbox of the run; or set terminal_backend to local, or leave it out"
)


@dataclass(frozen=True, slots=True)
class SandboxSource:
    """`make_pool` makes the pool once a sandbox is needed. `capacity` is how many rollouts can have one at once; None
    is any number. `trial` starts and ends one on this machine, where that may be impossible.
    """

    make_pool: Callable[[], SandboxPool]
    capacity: int | None = None
    trial: Callable[[], None] | None = None

    def check(self) -> None:
        """Raises ConfigError if there will be no sandboxes: each rollout would fail, and then the run."""
        try:
            if self.trial is not None:
                self.trial()
        except NotIsolatedError as error:
            raise ConfigError(str(error)) from None


def sandbox_source(
    place: Place | None, limits: SandboxLimits, environ: Mapping[str, str] = os.environ
) -> SandboxSource:
    """`limits` are for sandboxes on this machine; those of pods stand in the run. Raises ConfigError."""
    settings = load_settings("environment", environ)
    service = settings.sandboxes
    if place == "kubernetes" and service is None:
        raise ConfigError(NO_PODS)
    if place == "local" or service is None:
        limits = replace(limits, must_isolate=IN_POD in environ)
        trial = (lambda: LocalSandbox(limits).close()) if limits.must_isolate else None
        return SandboxSource(partial(LocalSandboxes, limits), trial=trial)
    make = partial(PodSandboxes, service.host, service.port, settings.run_uid, service.share)
    return SandboxSource(partial(make, run_name=settings.run_name), service.share)


WAIT_METRIC: Final = "agent/sandbox_wait"

SPLITS: Final = ("eval", "train")

PATIENCE_SECONDS: Final = 10.0
"""Shorter waits of all rollouts are normal: pods are replaced."""


class SandboxTurns:
    """At most `places` rollouts play at once, each with a sandbox of its own.

    While both training and held-out rollouts wait, a free place is for the split that plays fewer, and on a tie for the
    held-out ones. So each split soon has half of the places, however long its rollouts are and however many wait; of an
    odd number the evaluation has one more, and a single place is its own until it is over.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        places: int,
        note: Callable[[Mapping[str, float]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note` gets the figures of each training rollout."""
        self._toolbox, self._note, self._clock = toolbox, note, clock
        self._places = _Places(places)
        self._begun = self._playing = 0
        self._nobody_plays_since = 0.0

    @property
    def all_wait(self) -> bool:
        """Whether there are rollouts, and for a while none of them has had a sandbox."""
        waited = self._clock() - self._nobody_plays_since
        return self._begun > 0 and not self._playing and waited >= PATIENCE_SECONDS

    @asynccontextmanager
    async def turn(self, split: str) -> AsyncIterator[ReservedSandbox]:
        """The sandbox of one rollout, once there is one. Raises SandboxLostError."""
        since = self._clock()
        if not self._begun:
            self._nobody_plays_since = since
        self._begun += 1
        try:
            async with self._places.one(split):
                reserved = await self._toolbox.reserve()
                with self._in_use(reserved):
                    if split == "train":
                        self._note({WAIT_METRIC: self._clock() - since})
                    yield reserved
        finally:
            self._begun -= 1

    @contextmanager
    def _in_use(self, reserved: ReservedSandbox) -> Iterator[None]:
        self._playing += 1
        try:
            yield
        finally:
            self._playing -= 1
            self._nobody_plays_since = self._clock()
            self._toolbox.free(reserved)


class _Places:
    """Each split is served in its own order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {split: deque() for split in SPLITS}

    @asynccontextmanager
    async def one(self, split: str) -> AsyncIterator[None]:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[split].append(given)
        self._hand_out()
        try:
            await given
            yield
        finally:
            if not given.cancelled():  # a rollout may be canceled just when it has got its place
                self._free += 1
                self._held[split] -= 1
                self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (wanted := [split for split in SPLITS if self._waiting[split]]):
            split = min(wanted, key=self._held.__getitem__)
            given = self._waiting[split].popleft()
            if not given.cancelled():
                self._free -= 1
                self._held[split] += 1
                given.set_result(None)
