"""Two operators, one lease: the other one takes over, and one that was paused is harmless when it wakes up."""

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.cluster.admin import MERGE_PATCH, AdminClient, ApiError
from tests.integration.cluster.control_plane import OPERATOR_NAMESPACE, OPERATOR_TOKEN, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.proxy import Answer, ApiProxy, Hold, Hooks, Pass, ProxiedCall, refusal
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

nightly = pytest.mark.nightly(
    "operator/src/rl_operator/reconcile", "operator/src/rl_operator/process", "operator/src/rl_operator/cluster"
)

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
STOPPED = result("stopped", steps=2, total=TOTAL_STEPS)
JSON_PATCH = "application/json-patch+json"
LEASE_LOST = 4
WRITES = ("POST", "PUT", "PATCH", "DELETE")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plane(lonely_plane: ControlPlane) -> ControlPlane:
    """Where no other operator works."""
    return lonely_plane


@pytest.fixture
def runs(plane: ControlPlane) -> RunsNamespace:
    namespace = f"failover-{next(_numbers)}"
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return RunsNamespace(plane, namespace)


@dataclass(frozen=True)
class Replica:
    """An operator, and the proxy between it and the API server."""

    name: str
    proxy: ApiProxy
    process: OperatorProcess

    def writes(self) -> list[str]:
        """Everything it has tried to change, including its lease."""
        return [str(call) for call in self.proxy.calls if call.method in WRITES]

    @property
    def works(self) -> bool:
        return "working: " in self.process.log

    def until_ready(self) -> None:
        wait_for(f"{self.name} is ready", lambda: self.process.probe("/readyz") == (200, "ok"))

    def until_working(self, seconds: float) -> None:
        wait_for(f"{self.name} works", lambda: self.works, seconds=seconds)

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)


@contextmanager
def replica(plane: ControlPlane, name: str, lease: str, hooks: Hooks, *flags: str) -> Iterator[Replica]:
    """Started, and not waited for."""
    with ApiProxy(plane.server) as proxy:
        proxy.hooks = hooks
        kubeconfig = plane.kubeconfig(server=proxy.server)
        own = ("--identity", name, "--lease-name", lease, "--request-seconds", "60")
        process = OperatorProcess(kubeconfig, *FAST, *own, *flags)
        try:
            process.spawn()
            yield Replica(name, proxy, process)
        finally:
            if process.pid:
                os.kill(process.pid, signal.SIGCONT)
            process.close()


NO_LEASE_YET = Hooks(before=lambda call: refusal(503, "ServiceUnavailable") if "/leases" in call.path else Pass())


@pytest.fixture
def lease() -> str:
    return f"lease-{next(_numbers)}"


@pytest.fixture
def pair(plane: ControlPlane, lease: str, request: pytest.FixtureRequest) -> Iterator[tuple[Replica, Replica]]:
    """The first leads, the second stands by. Leases of 12 s, or shorter ones where a test waits for their end.

    Both start at once; the second may look at the lease when the first has it.
    """
    flags = getattr(request, "param", ())
    with (
        replica(plane, "first", lease, Hooks(), *flags) as first,
        replica(plane, "second", lease, NO_LEASE_YET, *flags) as second,
    ):
        first.until_working(60)
        first.until_ready()
        second.until_ready()
        second.proxy.hooks = Hooks()
        yield first, second


SHORT_LEASE = ("--lease-seconds", "6")


def give_back(plane: ControlPlane, lease: str) -> None:
    """The lease of a leader that is gone for good, before it has run out."""
    nobodys = {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1}}
    plane.admin.patch(f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/{lease}", nobodys)


def finish(runs: RunsNamespace, name: str) -> None:
    """Play the rest of a run's life, whatever its state."""
    pod = runs.until_pod(name=name)
    if "nodeName" not in runs.kubelet.pod(pod)["spec"]:  # type: ignore[index]
        runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.finish(pod, name)


def test_a_standby_is_healthy_writes_nothing_and_takes_over_when_the_leader_is_killed(
    pair: tuple[Replica, Replica], runs: RunsNamespace
) -> None:
    first, second = pair
    runs.apply("works")
    runs.until_training(name="works")
    runs.apply("starts")
    runs.kubelet.start(runs.until_pod(name="starts"))
    assert second.process.probe("/healthz") == second.process.probe("/readyz") == (200, "ok")
    assert second.writes() == []

    killed_at = time.monotonic()
    first.process.kill()
    runs.apply("new")
    runs.until_pod(name="new")
    seconds = time.monotonic() - killed_at
    print(f"failover after kill -9: {seconds:.1f} s to the pod of a new run")
    assert seconds < 20
    for name in ("works", "starts", "new"):
        finish(runs, name)
    runs.one_pod_per_attempt(attempts=3)


def test_a_terminated_leader_hands_over_at_once(pair: tuple[Replica, Replica], runs: RunsNamespace) -> None:
    first, second = pair
    runs.apply("works")
    runs.until_training(name="works")
    asked_at = time.monotonic()
    assert first.process.stop() == 0, first.process.log
    ended_after = time.monotonic() - asked_at
    second.until_working(30)
    seconds = time.monotonic() - asked_at
    print(f"hand-over after SIGTERM: {seconds:.1f} s, of these {ended_after:.1f} s until the first one's end")
    assert seconds < 10, "the lease would have run out after 12 s"
    finish(runs, "works")
    runs.one_pod_per_attempt(attempts=1)


@nightly
def test_a_restarted_container_takes_its_own_lease_at_once(
    plane: ControlPlane, pair: tuple[Replica, Replica], runs: RunsNamespace
) -> None:
    first, second = pair
    first.process.kill()
    before = first.process.log.count("working: ")
    restarted_at = time.monotonic()
    first.process.start()
    wait_for("it works again", lambda: first.process.log.count("working: ") > before)
    assert time.monotonic() - restarted_at < 10
    assert not second.works
    runs.apply()
    finish(runs, "sorting")


# --- a leader that is paused between its read and its write -------------------------------------------------------
@dataclass
class Held:
    """One call of a leader, delayed for as long as the test needs."""

    method: str
    part: str
    hold: Hold = field(default_factory=Hold)
    call: ProxiedCall | None = None

    def meant(self, call: ProxiedCall) -> bool:
        return self.call is None and call.method == self.method and self.part in f"{call.path} {call.body.decode()}"


class Pause:
    """Holds the first call of each kind, of any run."""

    def __init__(self, proxy: ApiProxy) -> None:
        self._held: dict[str, Held] = {}
        self._proxy = proxy
        self.codes: dict[int, int] = {}
        proxy.hooks = Hooks(before=self._before, after=self._after)

    def arm(self, name: str, method: str, part: str) -> None:
        self._held[name] = Held(method, part)

    def until_held(self, name: str) -> None:
        assert self._held[name].hold.reached.wait(60), f"no {self._held[name]} came"

    def release(self) -> Mapping[str, int]:
        """Forward all of them to the API server; returns its answers."""
        for held in self._held.values():
            held.hold.release.set()
        numbers = {name: held.call.number for name, held in self._held.items() if held.call}
        wait_for("all of them are answered", lambda: self.codes.keys() >= set(numbers.values()))
        return {name: self.codes[number] for name, number in numbers.items()}

    def calls(self) -> Mapping[str, ProxiedCall]:
        return {name: held.call for name, held in self._held.items() if held.call}

    def _before(self, call: ProxiedCall) -> Hold | Pass:
        for held in self._held.values():
            if held.meant(call):
                held.call = call
                return held.hold
        return Pass()

    def _after(self, call: ProxiedCall, answer: Answer) -> Pass:
        self.codes[call.number] = answer.status
        return Pass()


def pause_at_every_write(first: Replica, runs: RunsNamespace) -> Pause:
    """Six runs of one leader, each just before another write of its life."""
    pause = Pause(first.proxy)
    pods = {name: runs.until_training(name=name) for name in _applied(runs, "finalizer", "stop")}
    runs.apply("progress")
    runs.kubelet.start(runs.until_pod(name="progress"))
    runs.until_phase("Starting", "progress")

    arm: dict[str, tuple[str, str, Callable[[], object]]] = {
        "lock": ("PUT", "/rltrainingruns/lock/status", lambda: runs.apply("lock")),
        "config": ("POST", "/configmaps ", lambda: runs.apply("config")),
        "pod": ("POST", "/pods ", lambda: runs.apply("pod")),
        "progress": ("PATCH", "/rltrainingruns/progress/status", lambda: work(runs, "progress")),
        "finalizer": ("PATCH", f"/pods/{pods['finalizer']} ", lambda: end(runs, pods["finalizer"])),
        "stop": ("DELETE", f"/pods/{pods['stop']} ", lambda: runs.edit("stop", suspend=True)),
    }
    for name, (method, part, act) in arm.items():
        pause.arm(name, method, part)
        act()
        pause.until_held(name)
    return pause


def _applied(runs: RunsNamespace, *names: str) -> tuple[str, ...]:
    for name in names:
        runs.apply(name)
    return names


def work(runs: RunsNamespace, name: str) -> None:
    runs.kubelet.work(runs.until_pod(name=name))


def end(runs: RunsNamespace, pod: str) -> None:
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))


def finish_all(runs: RunsNamespace) -> None:
    """What the new leader does with the old one's state."""
    runs.until_phase("Succeeded", "finalizer")
    runs.until_released(runs.status("finalizer")["podName"])
    pod = runs.status("stop")["podName"]
    wait_for("the stopped run's pod is deleted", lambda: _deleting(runs, pod))
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, STOPPED))
    assert runs.until_phase("Stopped", "stop")["checkpoint"]["step"] == 2
    runs.until_released(pod)
    runs.kubelet.remove(pod)
    for name in ("lock", "config", "pod", "progress"):
        finish(runs, name)


def _deleting(runs: RunsNamespace, pod: str) -> bool:
    found = runs.kubelet.pod(pod)
    return found is None or "deletionTimestamp" in found["metadata"]


def replay(plane: ControlPlane, call: ProxiedCall) -> int:
    """Send a call of the operator once more; returns the code of the answer."""
    body = json.loads(call.body)
    with contextlib.closing(AdminClient("127.0.0.1", plane.port, OPERATOR_TOKEN)) as client:
        try:
            match call.method:
                case "POST":
                    client.post(call.path, body)
                case "PATCH":
                    client.patch(call.path, body, JSON_PATCH if isinstance(body, list) else MERGE_PATCH)
                case "PUT":
                    client.put(call.path, body)
                case "DELETE":
                    client.delete(call.path, body)
        except ApiError as error:
            return error.code
    return 200


def everything(runs: RunsNamespace) -> dict[str, Any]:
    """Runs and pods as they are, including ids and versions."""
    found = {name: runs.find(name) for name in ("lock", "config", "pod", "progress", "finalizer", "stop")}
    return {"runs": found, "pods": runs.kubelet.pods()}


@pytest.mark.parametrize("pair", [SHORT_LEASE], indirect=True, ids=["6 s"])
@nightly
def test_a_leader_suspended_before_its_writes_is_harmless(pair: tuple[Replica, Replica], runs: RunsNamespace) -> None:
    """Its calls arrive when others have done everything; then it wakes up."""
    first, second = pair
    pause = pause_at_every_write(first, runs)
    first.signal(signal.SIGSTOP)
    second.until_working(60)
    finish_all(runs)
    before = everything(runs)

    answers = pause.release()
    assert all(code in (404, 409, 422) for code in answers.values()), answers
    first.signal(signal.SIGCONT)
    assert first.process.until_ended() == LEASE_LOST, first.process.log[-3000:]
    assert "this process ends at once" in first.process.last_error
    stays("nothing has changed", lambda: everything(runs) == before)
    runs.one_pod_per_attempt(attempts=6)


@nightly
def test_calls_that_arrive_long_after_their_sender_is_gone_are_harmless(
    pair: tuple[Replica, Replica], runs: RunsNamespace, plane: ControlPlane, lease: str
) -> None:
    """The network may delay a call for any time: the sender's end does not revoke it."""
    first, second = pair
    pause = pause_at_every_write(first, runs)
    first.process.kill()
    give_back(plane, lease)
    second.until_working(60)
    finish_all(runs)
    before = everything(runs)
    answers = {name: replay(plane, call) for name, call in pause.calls().items()}
    assert all(code in (404, 409, 422) for code in answers.values()), answers
    stays("nothing has changed", lambda: everything(runs) == before)
    runs.one_pod_per_attempt(attempts=6)


def be_finished(runs: RunsNamespace, name: str, pod: str) -> None:
    finish(runs, name)


def be_stopped(runs: RunsNamespace, name: str, pod: str) -> None:
    runs.until_training(name=name)
    runs.edit(name, suspend=True)
    wait_for("its pod is deleted", lambda: _deleting(runs, pod))
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, STOPPED))
    runs.until_phase("Stopped", name)
    runs.until_released(pod)


def be_further(runs: RunsNamespace, name: str, pod: str) -> None:
    """In its second attempt."""
    runs.kubelet.start(pod)
    runs.kubelet.end(pod, "Failed", trainer=End(1, result("running", steps=1, total=TOTAL_STEPS)))
    second = runs.until_pod(attempt=2, name=name)
    runs.until_released(pod)
    runs.kubelet.start(second)
    runs.kubelet.work(second)
    runs.until_phase("Running", name)


COMES_TO = {"finished": be_finished, "stopped": be_stopped, "further": be_further}
"""What becomes of a run, by its name, while the call that creates its first pod is on its way."""


def told(runs: RunsNamespace) -> dict[str, Any]:
    """What the statuses say of attempts and pods; messages and metrics of a working run may change."""
    said = ("phase", "attempt", "attempts", "podName", "checkpoint", "failure")
    return {name: {field: runs.status(name).get(field) for field in said} for name in COMES_TO}


@nightly
def test_a_pod_created_long_after_its_attempt_ended_is_deleted(
    pair: tuple[Replica, Replica], runs: RunsNamespace, plane: ControlPlane, lease: str
) -> None:
    """The one call that names cannot stop: by then a user has deleted the pod of that name."""
    first, second = pair
    pause = Pause(first.proxy)
    for name in COMES_TO:
        pause.arm(name, "POST", "/pods ")
        runs.apply(name)
        pause.until_held(name)
    first.process.kill()
    give_back(plane, lease)
    second.until_working(60)
    pods = {name: runs.until_pod(name=name) for name in COMES_TO}
    for name, pod in pods.items():
        COMES_TO[name](runs, name, pod)
        if runs.kubelet.pod(pod):
            runs.kubelet.remove(pod)
    before = told(runs)

    assert {replay(plane, pause.calls()[name]) for name in COMES_TO} == {200}
    wait_for("the late pods are gone", lambda: not any(runs.kubelet.pod(pod) for pod in pods.values()))
    stays("the statuses say what they said", lambda: told(runs) == before)


def test_without_permission_for_leases_it_names_the_permission(plane: ControlPlane) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/rl-operator/roles/rl-operator"
    role = plane.admin.get(path)
    kept = [rule for rule in role["rules"] if "leases" not in rule["resources"]]
    plane.admin.patch(path, {"rules": kept})
    process = OperatorProcess(plane.kubeconfig(), "--lease-name", "forbidden", "--lease-seconds", "3")
    try:
        process.start()
        assert process.until_ended() == 3
        said = process.log.splitlines()[-1]
        assert "needs the verbs get, create and update for leases of coordination.k8s.io in namespace" in said
        assert "Traceback" not in process.log
    finally:
        plane.admin.patch(path, {"rules": role["rules"]})
        process.close()
