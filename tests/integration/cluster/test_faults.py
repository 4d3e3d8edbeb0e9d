"""Faults in the middle of a run's life: the end is the same, nothing starts twice, and the time is printed.

In each row a run trains, the fault begins, the run's pod fails, and a second attempt has to come of it. The time is
from the pod's failure to the second pod. The operator is one process over all rows, which must not end. Faults of
single calls are played side by side, each in a namespace of its own.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from tests.integration.cluster.control_plane import OPERATOR_TOKEN, ControlPlane
from tests.integration.cluster.faults import (
    after,
    before,
    broken,
    by_namespace,
    clock_off_by,
    dropped,
    jumbled,
    silent,
    writes,
)
from tests.integration.cluster.jumping_clock import JumpingClock
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.proxy import ApiProxy, Cut, Delay, Hold, Hooks, refusal
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

nightly = pytest.mark.nightly(
    "operator/src/rl_operator/reconcile", "operator/src/rl_operator/process", "operator/src/rl_operator/cluster"
)

REQUEST_SECONDS = 3
"""How long the operator waits for an answer here."""

HALF_OPEN_SECONDS = 80
"""After so long a watch that has brought nothing, not even the bookmark of each minute, is opened again."""

QUIET_LOOKS = 40
"""So many looks without a call are more than a second."""

_numbers = itertools.count(1)


@dataclass
class Stage:
    """An operator that reaches its API server through a proxy."""

    plane: ControlPlane
    proxy: ApiProxy
    operator: OperatorProcess
    clock: JumpingClock
    """The operator's."""

    times: dict[str, float] = field(default_factory=dict)
    """Seconds until all was well again, by fault."""

    def namespace(self) -> RunsNamespace:
        name = f"faults-{next(_numbers)}"
        self.plane.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return RunsNamespace(self.plane, name)


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, lonely_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    clock = JumpingClock(tmp_path_factory.mktemp("clock"))
    with ApiProxy(lonely_plane.server) as proxy:
        kubeconfig = lonely_plane.kubeconfig(OPERATOR_TOKEN, proxy.server)
        flags = (*FAST, "--request-seconds", str(REQUEST_SECONDS))
        operator = OperatorProcess(kubeconfig, *flags, env_vars=clock.env_vars)
        staged = Stage(lonely_plane, proxy, operator, clock)
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
    """The operator's log is shown with a failure; afterwards the faults are removed."""
    begun = len(stage.operator.log)
    yield
    stage.proxy.hooks = Hooks()
    stage.clock.jump(0)
    print(stage.operator.log[begun:][-6000:])
    if stage.clock.elapsed:
        stage.operator.kill()
        stage.clock.set_right()
    if not stage.operator.alive:
        stage.operator.start()


# --- the lives ----------------------------------------------------------------------------------------------------
FAILED = End(1, result("running", steps=1, total=TOTAL_STEPS))

Lives = Mapping[str, RunsNamespace]
"""By fault."""


def all_training(lives: Lives) -> Mapping[str, str]:
    """The names of the pods of runs that train, by fault."""
    for runs in lives.values():
        runs.apply()
    pods = {fault: runs.until_pod() for fault, runs in lives.items()}
    for fault, runs in lives.items():
        runs.kubelet.start(pods[fault])
        runs.kubelet.work(pods[fault])
    for runs in lives.values():
        runs.until_phase("Running")
    return pods


def training(runs: RunsNamespace) -> str:
    return all_training({"": runs})[""]


def find_second_pod(runs: RunsNamespace) -> str | None:
    status = runs.status()
    pod = status.get("podName", "")
    return pod if status.get("attempt") == 2 and runs.kubelet.pod(pod) else None


def second_pod(runs: RunsNamespace, seconds: float = 120.0) -> str:
    return wait_for("the pod of attempt 2", lambda: find_second_pod(runs), seconds=seconds)


def second_pods(stage: Stage, lives: Lives, seconds: float = 120.0) -> Mapping[str, str]:
    """The names of all of them, by fault; how long each took is noted."""
    began, pods = time.monotonic(), dict[str, str]()
    while missing := [fault for fault in lives if fault not in pods]:
        assert time.monotonic() < began + seconds, f"no second attempt within {seconds:.0f} s beside {missing}"
        for fault in missing:
            if pod := find_second_pod(lives[fault]):
                pods[fault] = pod
                stage.times[fault] = time.monotonic() - began
        time.sleep(0.03)
    return pods


def assert_true_end(runs: RunsNamespace, *reasons: str) -> None:
    """Each attempt has exactly one pod, and none was counted twice or forgotten."""
    status = runs.status()
    assert [(a["attempt"], a["reason"]) for a in status["attempts"]] == list(enumerate(reasons, 1))
    runs.one_pod_per_attempt(len(reasons))


Inject = Callable[[Stage], None]


def live_through(stage: Stage, lives: Lives, begin: Inject, then: Inject = lambda _: None) -> None:
    """Play them side by side: the faults `begin` when all train; `then` all pods have failed."""
    process = stage.operator.pid
    first = all_training(lives)
    begin(stage)
    for fault, runs in lives.items():
        runs.kubelet.end(first[fault], "Failed", trainer=FAILED)
    then(stage)
    second = second_pods(stage, lives)
    stage.proxy.hooks = Hooks()
    for fault, runs in lives.items():
        print(f"beside {fault}:")  # the last message before a failure
        runs.succeed(second[fault], attempt=2)
        assert_true_end(runs, "TrainerFailed", "Succeeded")
    assert stage.operator.pid == process


# --- one fault, one life ------------------------------------------------------------------------------------------
CALL_FAULTS: dict[str, Callable[[], Hooks]] = {
    "409 to the next 3 writes": lambda: before(3, refusal(409, "Conflict"), writes),
    "410 to the next 3 calls": lambda: before(3, refusal(410, "Expired")),
    "429 without a pause to the next 5 calls": lambda: before(5, refusal(429, "TooManyRequests")),
    "429 with Retry-After: 1 to the next 5 calls": (
        lambda: before(5, refusal(429, "TooManyRequests", **{"Retry-After": "1"}))
    ),
    "500 to the next 5 calls": lambda: before(5, refusal(500, "InternalError")),
    "503 to the next 5 calls": lambda: before(5, refusal(503, "ServiceUnavailable")),
    "500 after each of the next 3 writes was done": lambda: after(3, refusal(500, "InternalError")),
    "the next 5 connections break": lambda: before(5, Cut()),
    "the next 3 connections break after the write was done": lambda: after(3, Cut()),
    "the next 2 calls take 30 s": lambda: before(2, Delay(30)),
    "the next 2 calls are never answered": lambda: before(2, Hold()),
    "the next 2 writes are done and never answered": lambda: after(2, Hold()),
}
"""Of calls about the objects of one namespace: the others' are not touched."""


def hooked(make: Callable[[], Hooks]) -> Inject:
    def inject(stage: Stage) -> None:
        stage.proxy.hooks = make()

    return inject


def jump(hours: int) -> Inject:
    def inject(stage: Stage) -> None:
        if not stage.clock.jump(hours):
            pytest.skip("needs a C compiler")

    return inject


FAULTS: dict[str, Inject] = {
    "nothing": hooked(Hooks),
    "the watches expire (410)": hooked(lambda: broken(410, "pods", "rltrainingruns", "configmaps")),
    "the watch of pods ends with a 500": hooked(lambda: broken(500, "pods")),
    "all events twice, and older ones again": hooked(jumbled),
    "the API server's clock is 5 h fast": hooked(lambda: clock_off_by(5)),
    "the API server's clock is 5 h slow": hooked(lambda: clock_off_by(-5)),
    "the operator's clock jumps 5 h ahead": jump(5),
    "the operator's clock jumps 5 h back": jump(-5),
    "the API server is killed and started": lambda stage: stage.plane.restart_api_server(),
    "etcd is killed and started": lambda stage: stage.plane.restart_etcd(),
}
"""Of all that the operator sees."""


def test_the_end_is_the_same_with_any_fault_of_a_call(stage: Stage) -> None:
    lives = {fault: stage.namespace() for fault in CALL_FAULTS}
    hooks = {runs.namespace: CALL_FAULTS[fault]() for fault, runs in lives.items()}
    live_through(stage, lives, hooked(lambda: by_namespace(hooks)))


IN_MERGE = ("the API server is killed and started", "the watches expire (410)")


@pytest.mark.parametrize(
    "fault", [fault if fault in IN_MERGE else pytest.param(fault, marks=nightly) for fault in FAULTS]
)
def test_the_end_is_the_same(stage: Stage, fault: str) -> None:
    live_through(stage, {fault: stage.namespace()}, FAULTS[fault])


@nightly
def test_the_end_is_the_same_when_all_watches_go_silent(stage: Stage) -> None:
    """Half-open connections. With a C compiler the clock is advanced; without one the test has to wait."""
    runs = stage.namespace()

    def silence(stage: Stage) -> None:
        stage.proxy.hooks = silent(len(stage.proxy.calls))

    def wait(stage: Stage) -> None:
        stays("nobody has told the operator", lambda: runs.status()["attempt"] == 1)
        stage.clock.elapse(HALF_OPEN_SECONDS)

    live_through(stage, {"all watches go silent (half-open), but for 80 s": runs}, silence, wait)


# --- what vanishes unwatched --------------------------------------------------------------------------------------
def until_quiet(runs: RunsNamespace) -> None:
    """Until everything about a training run is written."""
    counts: list[int] = []

    def look() -> bool:
        counts.append(runs.calls())
        return len(counts) > QUIET_LOOKS and counts[-1] == counts[-QUIET_LOOKS]

    wait_for("nothing is written any more", look)


def test_a_run_that_vanishes_in_a_gap(stage: Stage) -> None:
    """The framework never reports it; nothing else does here either, because its children have no events."""
    runs = stage.namespace()
    pod = training(runs)
    until_quiet(runs)  # a write would reveal that the run is gone
    stage.proxy.hooks = dropped("rltrainingruns", "pods", "configmaps", "networkpolicies")
    runs.delete()
    runs.kubelet.collect_garbage()
    stays("nobody has told the operator", lambda: (runs.kubelet.pod(pod) or {}).get("metadata", {}).get("finalizers"))
    began = time.monotonic()
    stage.proxy.hooks = broken(410, "rltrainingruns")
    stage.namespace().apply(suspend=True)
    wait_for("nothing is left", runs.empty)
    stage.times["a run vanishes while the watch of runs is blind (until let go)"] = time.monotonic() - began


def test_garbage_collection_reveals_that_a_run_has_vanished(stage: Stage) -> None:
    runs = stage.namespace()
    training(runs)
    stage.proxy.hooks = dropped("rltrainingruns")
    runs.delete()
    began = time.monotonic()
    runs.kubelet.collect_garbage()
    wait_for("nothing is left", runs.empty)
    stage.times["a run vanishes, and only its children's deletion is told"] = time.monotonic() - began


def test_a_pod_that_vanishes_in_a_gap(stage: Stage) -> None:
    runs = stage.namespace()
    first = training(runs)
    stage.proxy.hooks = dropped("pods")
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}/pods/{first}", {"metadata": {"finalizers": None}})
    runs.kubelet.remove(first)
    began = time.monotonic()
    stage.proxy.hooks = broken(410, "pods")
    other = stage.namespace()
    other.apply()
    second = second_pod(runs)
    stage.times["a pod vanishes while the watch of pods is blind"] = time.monotonic() - began
    runs.succeed(second, attempt=2)
    assert_true_end(runs, "PodLost", "Succeeded")
    other.delete()


def test_a_config_map_that_vanishes_in_a_gap(stage: Stage) -> None:
    runs = stage.namespace()
    training(runs)
    path = f"/api/v1/namespaces/{runs.namespace}/configmaps/{runs.status()['configMapName']}"
    stage.proxy.hooks = dropped("configmaps")
    runs.admin.delete(path)
    began = time.monotonic()
    stage.proxy.hooks = broken(410, "configmaps")
    stage.namespace().apply()
    wait_for("it is there again", lambda: runs.admin.find(path))
    stage.times["a ConfigMap vanishes while its watch is blind"] = time.monotonic() - began


# --- what ends the process ----------------------------------------------------------------------------------------
@nightly
def test_a_watch_of_runs_that_ends_with_a_500_ends_only_the_process(stage: Stage) -> None:
    """The framework considers it fatal. A restarted container continues."""
    runs = stage.namespace()
    first = training(runs)
    stage.proxy.hooks = broken(500, "rltrainingruns")
    stage.namespace().apply(suspend=True)
    runs.kubelet.end(first, "Failed", trainer=FAILED)
    assert stage.operator.until_ended() == 3
    last = stage.operator.last_error
    assert "given up watching our kinds" in last, last
    stage.operator.start()
    runs.succeed(second_pod(runs), attempt=2)
    assert_true_end(runs, "TrainerFailed", "Succeeded")


def test_the_kinds_are_removed_and_restored(stage: Stage) -> None:
    """With a training run. Its pod is released; the process ends with a message, and a new one serves new runs."""
    runs = stage.namespace()
    pod = training(runs)
    stage.plane.remove_definitions()
    try:
        code = stage.operator.until_ended()
    finally:  # other tests use this API server, too
        stage.plane.install_definitions()
        install_runtime(stage.plane.admin, "tiny")
    # Which of the two depends on what the API server's discovery knows already; the next process reports the first.
    last = stage.operator.last_error
    assert code == 3
    assert "install the CRDs first" in last or "given up watching our kinds" in last, stage.operator.log[-3000:]
    runs.kubelet.collect_garbage()
    began = time.monotonic()
    stage.operator.start()
    wait_for("its pod is let go", lambda: runs.kubelet.pod(pod) is None)
    stage.times["the CRDs are removed and restored (until let go)"] = time.monotonic() - began
    again = stage.namespace()
    again.apply()
    again.succeed(again.until_pod())
