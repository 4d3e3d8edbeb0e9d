"""Which user a request comes from, and which runs that user sees."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from sys import intern
from typing import Final, Protocol, TypeVar

from rl_operator.operator_errors import ForbiddenError
from rl_operator.targets.target import Target
from rl_operator.ui.live_runs import LiveRuns, Versions

Answer_co = TypeVar("Answer_co", covariant=True)
Answer = TypeVar("Answer")

_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]+):.*")


class OfNamespace(Protocol[Answer_co]):
    """A question about the runs of a namespace; None: of all."""

    def __call__(self, namespace: str | None, /) -> Answer_co: ...


@dataclass(frozen=True)
class Visitor:
    """What is read and done, is read and done with the rights of `target`.

    `live_of` follows the runs of a namespace (None: all that are visible). `namespace`: no other one is shown; None:
    all. `caller`: as the target knows them, where there are several. `can_log_out`: they logged in here.
    `variables`: of their own environment, with which their backend is asked; None: this server is not theirs alone.
    """

    target: Target
    live_of: Callable[[str | None], LiveRuns]
    namespace: str | None = None
    may_change: bool = True
    caller: str = ""
    can_log_out: bool = False
    variables: Mapping[str, str] | None = None

    def visible(self, ask: OfNamespace[Answer], namespace: str | None) -> tuple[Answer, str]:
        """As `of_visible`, for what is shown. Raises OperatorErrors."""
        return of_visible(ask, self._shown(namespace), self.target)

    def live(self, namespace: str | None) -> LiveRuns:
        return self.live_of(self._shown(namespace))

    def check_namespace(self, namespace: str) -> None:
        """Raises ForbiddenError for one that is not shown."""
        if self.namespace not in (None, namespace):
            raise ForbiddenError(f"this page shows the namespace {self.namespace} alone, not {namespace[:100]}")

    def _shown(self, namespace: str | None) -> str | None:
        if namespace:
            self.check_namespace(namespace)
        return namespace or self.namespace


def of_visible(ask: OfNamespace[Answer], namespace: str | None, target: Target) -> tuple[Answer, str]:
    """The answer for a namespace; None: for all or, for callers who may not list those, for the target's usual one or
    else that of their service account, which is then named. Blocks.
    """
    try:
        return ask(namespace), ""
    except ForbiddenError:
        if namespace is not None:
            raise
    try:
        return ask(target.namespace), target.namespace
    except ForbiddenError:
        own = _SERVICE_ACCOUNT.fullmatch(target.caller)
        if own is None:
            raise
        return ask(own[1]), own[1]


class VisibleVersions:
    """What LiveRuns polls: of a namespace, or of all that are visible. `opened` yields the target for one poll.

    Many callers see the same runs: the names and versions of a thousand take 0.3 MiB, and are in memory once.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Target]], namespace: str | None) -> None:
        self._opened = opened
        self._namespace = namespace

    def __call__(self) -> Versions:
        with self._opened() as target:
            found, only = of_visible(target.run_versions, self._namespace, target)
            found = {(intern(place), intern(name)): intern(version) for (place, name), version in found.items()}
        self._namespace = self._namespace or only or None  # not refused again each second
        return found
