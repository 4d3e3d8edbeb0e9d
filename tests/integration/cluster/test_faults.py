"""Faults in the middle of a run's life: the end is the same, nothing starts twice, and it takes as long as is printed.

In each row a run trains, the fault begins, the run's pod fails, and a second attempt has to come of it. The time is
from the pod's failure to the second pod. The operator is one process over all rows, which must not end.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.integration.cluster.conftest import running_control_plane
from tests.integration.cluster.control_plane import API_SERVER, OPERATOR_TOKEN, ControlPlane
from tests.integration.cluster.faults import after, before, broken, clock_off_by, jumbled, silent, writes
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.proxy import ApiProxy, Cut, Delay, Hold, Hooks, refusal
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

REQUEST_SECONDS = 3
"""How long the operator waits for an answer here."""

_numbers = itertools.count(1)


@dataclass
class Stage:
    """A control plane of its own, and an operator that reaches it through a proxy."""

    plane: ControlPlane
    proxy: ApiProxy
    operator: OperatorProcess
    times: dict[str, float] = field(default_factory=dict)
    """Seconds until all was well again, by fault."""

    def namespace(self) -> RunsNamespace:
        name = f"faults-{next(_numbers)}"
        self.plane.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return RunsNamespace(self.plane, name)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with running_control_plane(API_SERVER) as plane, ApiProxy(plane.server) as proxy:
        install_runtime(plane.admin, "tiny")
        kubeconfig = plane.kubeconfig(OPERATOR_TOKEN, proxy.server)
        operator = OperatorProcess(kubeconfig, *FAST, "--request-seconds", str(REQUEST_SECONDS))
        staged = Stage(plane, proxy, operator)
        try:
            operator.start()
            yield staged
        finally:
            operator.close()
        _print(request, staged.times)


def _print(request: pytest.FixtureRequest, times: dict[str, float]) -> None:
    lines = [f"  {name:<58} {seconds:6.1f} s" for name, seconds in times.items()]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n\nfrom a failed pod to the next attempt's, beside:", *lines, sep="\n")


@pytest.fixture(autouse=True)
def _operator_log(request: pytest.FixtureRequest, stage: Stage) -> Iterator[None]:
    """What the operator said beside what failed; afterwards the way is clear again."""
    begun = len(stage.operator.log)
    yield
    stage.proxy.hooks = Hooks()
    print(stage.operator.log[begun:][-6000:])
    if not stage.operator.alive:
        stage.operator.start()


# --- one fault, one life ------------------------------------------------------------------------------------------
Inject = Callable[[Stage], None]


def hooked(make: Callable[[], Hooks]) -> Inject:
    def inject(stage: Stage) -> None:
        stage.proxy.hooks = make()

    return inject


def silence(stage: Stage) -> None:
    stage.proxy.hooks = silent(len(stage.proxy.calls))


FAULTS: dict[str, Inject] = {
    "nothing": hooked(Hooks),
    "409 to the next 3 writes": hooked(lambda: before(3, refusal(409, "Conflict"), writes)),
    "410 to the next 3 calls": hooked(lambda: before(3, refusal(410, "Expired"))),
    "429 without a pause to the next 5 calls": hooked(lambda: before(5, refusal(429, "TooManyRequests"))),
    "429 with Retry-After: 1 to the next 5 calls": hooked(
        lambda: before(5, refusal(429, "TooManyRequests", **{"Retry-After": "1"}))
    ),
    "500 to the next 5 calls": hooked(lambda: before(5, refusal(500, "InternalError"))),
    "503 to the next 5 calls": hooked(lambda: before(5, refusal(503, "ServiceUnavailable"))),
    "500 after each of the next 3 writes was done": hooked(lambda: after(3, refusal(500, "InternalError"))),
    "the next 5 connections break": hooked(lambda: before(5, Cut())),
    "the next 3 connections break after the write was done": hooked(lambda: after(3, Cut())),
    "the next 2 calls take 30 s": hooked(lambda: before(2, Delay(30))),
    "the next 2 calls are never answered": hooked(lambda: before(2, Hold())),
    "the next 2 writes are done and never answered": hooked(lambda: after(2, Hold())),
    "the watches expire (410)": hooked(lambda: broken(410, "pods", "rltrainingruns", "configmaps")),
    "the watch of pods ends with a 500": hooked(lambda: broken(500, "pods")),
    "all events twice, and older ones again": hooked(jumbled),
    "the API server's clock is 5 h fast": hooked(lambda: clock_off_by(5)),
    "the API server's clock is 5 h slow": hooked(lambda: clock_off_by(-5)),
    "the API server is killed and started": lambda stage: stage.plane.restart_api_server(),
    "etcd is killed and started": lambda stage: stage.plane.restart_etcd(),
    "all watches go silent (half-open)": silence,
}


def training(runs: RunsNamespace, name: str = "sorting") -> str:
    """The name of the pod of a run that trains."""
    runs.apply(name)
    pod = runs.until_pod(name=name)
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running", name)
    return pod


def second_pod(runs: RunsNamespace, seconds: float = 120.0) -> str:
    def look() -> str | None:
        status = runs.status()
        pod = status.get("podName", "")
        return pod if status.get("attempt") == 2 and runs.kubelet.pod(pod) else None

    return wait_for("the pod of attempt 2", look, seconds=seconds)


def assert_true_end(runs: RunsNamespace, *reasons: str) -> None:
    """Each attempt has just one pod, and none was counted twice or forgotten."""
    status = runs.status()
    assert [(a["attempt"], a["reason"]) for a in status["attempts"]] == list(enumerate(reasons, 1))
    created = [w.name for w in runs.writes() if (w.verb, w.resource, w.code) == ("create", "pods", 201)]
    assert len(created) == len(set(created)) == len(reasons), created


@pytest.mark.parametrize("fault", FAULTS)
def test_the_end_is_the_same(stage: Stage, fault: str) -> None:
    runs, process = stage.namespace(), stage.operator.pid
    first = training(runs)
    FAULTS[fault](stage)
    runs.kubelet.end(first, "Failed", trainer=End(1, result("running", steps=1, total=TOTAL_STEPS)))
    began = time.monotonic()
    second = second_pod(runs)
    stage.times[fault] = time.monotonic() - began
    stage.proxy.hooks = Hooks()
    runs.succeed(second, attempt=2)
    assert_true_end(runs, "TrainerFailed", "Succeeded")
    assert stage.operator.pid == process
