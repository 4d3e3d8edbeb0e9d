"""The current leases: which processes are live, and how a side ended. Bounded, because any client can request one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tinker_atropos.lease_states import EVALUATOR
from tinker_atropos.trajectory_api.messages.bodies import Refusal
from tinker_atropos.trajectory_api.messages.leases import (
    MAX_LEASES,
    Lease,
    LeaseView,
    Role,
    environments_view,
    first_to_forget,
    view,
)
from tinker_atropos.trajectory_api.messages.requests import LeaseReport

TRAINER = "trainer"


def lease_key(role: Role, report: LeaseReport) -> str:
    """The key under which a lease is stored: `trainer`, `environment`, or `environment/ID`."""
    return f"{role}/{report.id}" if role == "environment" and report.id else role


class HeldLeases:
    """`reports` are those from before a restart of the process: they count as just renewed."""

    def __init__(
        self, reports: Mapping[str, LeaseReport], clock: Callable[[], float], grace_seconds: float = 0.0
    ) -> None:
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._leases = {key: _lease(report, clock()) for key, report in reports.items()}
        self._over_since: float | None = None
        self.environment_state: str | None = None
        for report in reports.values():
            self._keep_state(report)

    def trainer(self) -> LeaseView:
        return view("trainer", self._leases.get(TRAINER), self._clock())

    def environments(self, *, over: bool) -> LeaseView:
        """All environments as one side; `over`: the run is over."""
        now = self._clock()
        self._over_since = (self._over_since or now) if over else None
        over_for = None if self._over_since is None else now - self._over_since
        return environments_view(self._of_environments().values(), now, self._grace_seconds, over_for)

    def renew(self, role: Role, report: LeaseReport) -> str | None:
        """Record a heartbeat. Returns the key of the ended lease it replaces. Raises Refusal if there is no room."""
        key, forgotten = lease_key(role, report), None
        environments = self._of_environments()
        if role == "environment" and key not in environments and len(environments) >= MAX_LEASES:
            forgotten = first_to_forget(environments, self._clock())
            if forgotten is None:
                raise Refusal(409, "id", f"{MAX_LEASES} environments are live: no more can join this run")
            del self._leases[forgotten]
        self._leases[key] = _lease(report, self._clock())
        self._keep_state(report)
        return forgotten

    def _keep_state(self, report: LeaseReport) -> None:
        """What the evaluating environment reported last: a process that replaces it goes on from there."""
        if report.environment_state is not None and report.index == EVALUATOR:
            self.environment_state = report.environment_state

    def ended(self) -> list[str]:
        """The keys of the environments' leases that are not live."""
        now = self._clock()
        return [key for key, lease in self._of_environments().items() if not view("environment", lease, now).live]

    def forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._leases.pop(key, None)

    def to_wire(self) -> Iterator[dict[str, Any]]:
        """Each environment's own lease, for `/status`."""
        now = self._clock()
        for key, lease in self._of_environments().items():
            seen = view("environment", lease, now)
            yield {"id": key.partition("/")[2], "index": lease.index, "state": seen.state, "reason": seen.reason}

    def _of_environments(self) -> dict[str, Lease]:
        return {key: lease for key, lease in self._leases.items() if key != TRAINER}


def _lease(report: LeaseReport, renewed_at: float) -> Lease:
    return Lease(
        report.state,
        report.reason,
        report.ttl_seconds,
        renewed_at,
        report.index,
        report.replaced,
        report.warnings,
        report.environment_state,
    )
