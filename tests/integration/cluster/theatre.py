"""Where lives are played: an API server, one operator, and the proxy between them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.integration.cluster.control_plane import OPERATOR_TOKEN, ControlPlane
from tests.integration.cluster.kill_points import Point, points_of
from tests.integration.cluster.lives import ALL_SCRIPTS, Life, Outcome, play, sweep_away
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.proxy import ApiProxy
from tests.integration.cluster.runs import RunsNamespace

WORKERS = 20
"""A call that is held holds a worker."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Undisturbed:
    """The calls of an undisturbed life, and its end."""

    points: Sequence[Point]
    outcome: Outcome


class Theatre:
    """No other operator may serve that API server: it would help out."""

    def __init__(self, plane: ControlPlane, proxy: ApiProxy) -> None:
        self.admin = plane.admin
        self.proxy = proxy
        kubeconfig = plane.kubeconfig(OPERATOR_TOKEN, proxy.server)
        self.operator = OperatorProcess(kubeconfig, *FAST, "--workers", str(WORKERS))
        self._plane = plane

    def namespace(self) -> RunsNamespace:
        name = f"life-{next(_numbers)}"
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return RunsNamespace(self._plane, name)

    def play_to_the_end(self, lives: Sequence[Life]) -> None:
        play(self.admin, lives, until=lambda: all(life.over for life in lives))

    def undisturbed(self) -> Mapping[str, Undisturbed]:
        """Each of the lives, played without hooks."""
        lives = [Life(self.namespace(), name) for name in ALL_SCRIPTS]
        self.play_to_the_end(lives)
        told = {
            life.name: Undisturbed(points_of(self.proxy.calls, life.runs.namespace), life.outcome()) for life in lives
        }
        sweep_away(self.admin, lives)
        return told


@contextmanager
def open_theatre(plane: ControlPlane) -> Iterator[Theatre]:
    with ApiProxy(plane.server) as proxy:
        theatre = Theatre(plane, proxy)
        try:
            theatre.operator.start()
            yield theatre
        finally:
            print(theatre.operator.log[-6000:])  # shown with a failure
            theatre.operator.close()
