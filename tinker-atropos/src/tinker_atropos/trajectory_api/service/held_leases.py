"""The current leases: which processes are live, and how a side ended. Bounded, because any client can request one.

The trainer has one lease. Each environment process has its own, under the `id` that it generated when it started; one
that sends none (a single environment, as in Atropos) holds the lease without a name. The trainer sees all of them as
one side: it is live while any of them is, and the last failure says how it ended.

A heartbeat renews a lease for its `ttl_seconds`. A process that also holds a connection open (`held_connection.py`) is
there as long as that is, though it may be silent: frozen, or without CPU. The trainer is waited for until it is gone,
and an environment for SILENT_SECONDS.

Environments in other pods are replaced when they die. So a side without a live environment is `away`
for a grace period, and only then gone. The environment in the run's own pod is not replaced: when it has ended, the
side is gone even if others are live, because nothing would be evaluated anymore. When the run is over, only the
evaluating environment (index 0) is waited for longer than OTHERS_SECONDS, and only it is replaced: it has to evaluate
the final weights.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rl_contract.processes import EVALUATOR, PeerState
from rl_contract.wire import more_than
from tinker_atropos.held_connection import SILENT_SECONDS
from tinker_atropos.trajectory_api.messages.bodies import ApiRefusal
from tinker_atropos.trajectory_api.messages.requests import LeaseReport

Role = Literal["trainer", "environment"]

PEERS: dict[Role, Role] = {"trainer": "environment", "environment": "trainer"}

OTHERS_SECONDS = 10.0
MAX_LEASES = 64


@dataclass(frozen=True, slots=True)
class Lease:
    """What a process last reported about itself, and when (`renewed_at`, seconds of the caller's clock). `held`: its
    connection is open.
    """

    report: LeaseReport
    renewed_at: float
    held: bool = False

    @property
    def is_open(self) -> bool:
        """It has reported no end; it may be silent for too long."""
        return self.report.state in ("starting", "working")

    @property
    def ended_at(self) -> float:
        """When it ended, or will end unless it is renewed."""
        return self.renewed_at + (self.allowed if self.is_open else 0)

    @property
    def allowed(self) -> float:
        """Seconds of silence."""
        return max(SILENT_SECONDS, self.report.ttl_seconds) if self.held else self.report.ttl_seconds


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What the other side sees. `lost`: the lease expired without a report of `done` or `failed`."""

    state: PeerState
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    environment_state: str | None = None

    @property
    def gone(self) -> bool:
        return self.state in ("failed", "lost")

    @property
    def live(self) -> bool:
        return self.state in ("starting", "working")

    def to_wire(self) -> dict[str, object]:
        """Without what only some environments report."""
        said = {"warnings": list(self.warnings), "environment_state": self.environment_state}
        return {"state": self.state, "reason": self.reason, **{name: each for name, each in said.items() if each}}


def view(role: Role, lease: Lease | None, now: float) -> LeaseView:
    """One process's lease."""
    if lease is None:
        return LeaseView("absent")
    report = lease.report
    if lease.is_open and now > lease.ended_at:
        return LeaseView("lost", f"no heartbeat from the {role} for more than {lease.allowed:g} seconds")
    if lease.is_open and now > lease.renewed_at + report.ttl_seconds:
        return LeaseView(report.state, f"silent for {more_than(now - lease.renewed_at)}: frozen, or short of CPU?")
    warnings = report.warnings if lease.is_open else ()  # how it ended says more
    return LeaseView(report.state, report.reason, warnings, report.environment_state)


def environments_view(
    leases: Iterable[Lease], now: float, grace_seconds: float = 0.0, over_for: float | None = None
) -> LeaseView:
    """All environments as one side. `over_for`: seconds since the run ended, None while it continues."""
    considered = list(leases)
    if over_for is not None and over_for > OTHERS_SECONDS:
        considered = [lease for lease in considered if lease.report.index == EVALUATOR] or considered
    if not considered:
        return LeaseView("absent")
    views = {lease: view("environment", lease, now) for lease in considered}
    if grace_seconds and over_for is None and (missed := _missed_for_good(views)):
        return views[missed]
    live = [lease for lease, seen in views.items() if seen.live]
    if live:
        return views[
            min(live, key=lambda lease: (lease.report.state != "working", lease.report.index, -lease.renewed_at))
        ]
    evaluators = {lease: seen for lease, seen in views.items() if lease.report.index == EVALUATOR}
    if over_for is not None and any(seen.state == "done" for seen in evaluators.values()):
        return LeaseView("done")  # whatever happened to its predecessors and to others
    last = _last(views)
    without_one = now - max(lease.ended_at for lease in considered)
    waited = without_one if over_for is None else over_for
    comes = over_for is None or (bool(evaluators) and all(lease.report.replaced for lease in evaluators))
    if comes and waited < grace_seconds:
        return _away(views[last], without_one, grace_seconds)
    return views[last]


def _missed_for_good(views: Mapping[Lease, LeaseView]) -> Lease | None:
    """An environment that has ended and is not replaced, although others are."""
    lasting = {lease: seen for lease, seen in views.items() if not lease.report.replaced}
    return _last(lasting) if lasting and not any(seen.live for seen in lasting.values()) else None


def _last(views: Mapping[Lease, LeaseView]) -> Lease:
    """The lease, among those that ended, that says how: a failure takes precedence over a normal end."""
    return max(views, key=lambda lease: (views[lease].gone, lease.ended_at))


def _away(last: LeaseView, without_one: float, grace_seconds: float) -> LeaseView:
    return LeaseView(
        "away",
        f"no environment has been live for {more_than(without_one)}, and {grace_seconds:g} s are allowed until another "
        f"one comes; the last one is {last.state}" + (f": {last.reason}" if last.reason else ""),
    )


def not_live(leases: Mapping[str, Lease], now: float) -> list[str]:
    """The keys of the environments' leases that have ended, the one that did so first at the beginning."""
    ended = [key for key, lease in leases.items() if not view("environment", lease, now).live]
    return sorted(ended, key=lambda key: leases[key].ended_at)


TRAINER = "trainer"


def lease_key(role: Role, lease_id: str) -> str:
    """The key under which a lease is stored: `trainer`, `environment`, or `environment/ID`."""
    return f"{role}/{lease_id}" if role == "environment" and lease_id else role


class HeldLeases:
    """`reports` are those from before a restart of the process: they count as just renewed."""

    def __init__(
        self, reports: Mapping[str, LeaseReport], clock: Callable[[], float], grace_seconds: float = 0.0
    ) -> None:
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._leases = {key: Lease(report, clock()) for key, report in reports.items()}
        self._connections: Counter[str] = Counter()
        self._over_since: float | None = None
        self.environment_state: str | None = None
        for report in reports.values():
            self._keep_state(report)

    def trainer(self) -> LeaseView:
        """Lost is one that is gone. One that is only silent has a pod, whose end ends the environment as well."""
        now, lease = self._clock(), self._all().get(TRAINER)
        return view("trainer", lease, min(now, lease.ended_at) if lease and lease.held else now)

    def environments(self, *, over: bool) -> LeaseView:
        """All environments as one side; `over`: the run is over."""
        now = self._clock()
        self._over_since = (self._over_since or now) if over else None
        over_for = None if self._over_since is None else now - self._over_since
        return environments_view(self._of_environments().values(), now, self._grace_seconds, over_for)

    def renew(self, role: Role, report: LeaseReport) -> str | None:
        """Record a heartbeat. Returns the key of the ended lease it replaces. Raises ApiRefusal if there is no room."""
        key, forgotten = lease_key(role, report.id), None
        environments = self._of_environments()
        if role == "environment" and key not in environments and len(environments) >= MAX_LEASES:
            forgotten = next(iter(not_live(environments, self._clock())), None)
            if forgotten is None:
                raise ApiRefusal(409, "id", f"{MAX_LEASES} environments are live: no more can join this run")
            del self._leases[forgotten]
        self._leases[key] = Lease(report, self._clock())
        self._keep_state(report)
        return forgotten

    def _keep_state(self, report: LeaseReport) -> None:
        """What the evaluating environment reported last: a process that replaces it goes on from there."""
        if report.environment_state is not None and report.index == EVALUATOR:
            self.environment_state = report.environment_state

    def ended(self) -> list[str]:
        """The keys of the environments' leases that are not live."""
        return not_live(self._of_environments(), self._clock())

    def forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._leases.pop(key, None)

    def to_wire(self) -> Iterator[dict[str, object]]:
        """Each environment's own lease, for `/status`."""
        now = self._clock()
        for key, lease in self._of_environments().items():
            seen = view("environment", lease, now)
            yield {"id": key.partition("/")[2], "index": lease.report.index, "state": seen.state, "reason": seen.reason}

    def live_ids(self) -> set[str]:
        """The ids of the environment processes that are live."""
        now, leases = self._clock(), self._of_environments().values()
        return {lease.report.id for lease in leases if view("environment", lease, now).live}

    def _of_environments(self) -> dict[str, Lease]:
        return {key: lease for key, lease in self._all().items() if key != TRAINER}

    def _all(self) -> dict[str, Lease]:
        return {key: replace(lease, held=self._connections[key] > 0) for key, lease in self._leases.items()}

    @contextlib.contextmanager
    def connected(self, key: str) -> Iterator[None]:
        """While the block runs, a process holds its connection."""
        self._connections[key] += 1
        try:
            yield
        finally:
            self._connections[key] -= 1
            self._connections += Counter()  # forgets what is at zero
