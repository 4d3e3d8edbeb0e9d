"""The probes of a real process: when they fail, and when they do not.

Slow cases run in parallel: each operator has its own proxy, and watches the same few objects.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.proxy import Action, Answer, ApiProxy, Hold, Hooks, Pass, ProxiedCall
from tests.ports import free_port

STUCK_SECONDS = 5
FLAGS = ("--namespace", "default", "--stuck-seconds", str(STUCK_SECONDS), "--request-seconds", "50")
"""A namespace of its own, so that it is in nobody's way."""

HEALTHY = (200, "ok")


@dataclass(frozen=True)
class Probed:
    proxy: ApiProxy
    process: OperatorProcess

    def until(self, path: str, code: int, sentence: str) -> None:
        def look() -> bool:
            seen = self.process.probe(path)
            return seen[0] == code and sentence in seen[1]

        wait_for(f"{path} answers {code} and {sentence!r}", look)


def stay_alive(*probed: Probed, seconds: float) -> None:
    def look() -> bool:
        return all(one.process.probe("/healthz") == HEALTHY for one in probed)

    stays("/healthz answers 200", look, seconds=seconds)


Spawn = Callable[[Hooks], Probed]


@pytest.fixture
def spawn(lonely_plane: ControlPlane) -> Iterator[Spawn]:
    """Starts an operator behind these hooks, and waits for nothing."""
    with ExitStack() as stack:

        def one(hooks: Hooks) -> Probed:
            proxy = stack.enter_context(ApiProxy(lonely_plane.server))
            proxy.hooks = hooks
            process = OperatorProcess(lonely_plane.kubeconfig(server=proxy.server), *FAST, *FLAGS)
            stack.callback(process.close)
            process.spawn()
            return Probed(proxy, process)

        yield one


def bookmark(call: ProxiedCall) -> Answer:
    """A watch that brings a bookmark and ends: the API server would take a minute."""
    plural = call.path.rpartition("/")[2]
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": call.query["resourceVersion"]}}}
    return Answer(200, json.dumps({**event, "kind": plural}).encode() + b"\n")


def lively(*silent: str) -> Hooks:
    """Every watch brings bookmarks all the time, except those of these resources, which bring nothing."""

    def before(call: ProxiedCall) -> Action:
        if not call.watch or call.path.rpartition("/")[2] in silent:
            return Pass()
        return bookmark(call)

    return Hooks(before=before, event=lambda _call, _event: ())


AWAY = Hooks(before=lambda _call: Answer(503, b'{"kind": "Status", "code": 503, "message": "away"}'))


@pytest.mark.nightly("operator/src/rl_operator/process", "operator/src/rl_operator/cluster")
def test_an_open_but_silent_watch_fails_the_probe(spawn: Spawn) -> None:
    """Our own watch of pods, and kopf's of runs; an operator whose watches all bring events stays healthy."""
    silent = {plural: spawn(lively(plural)) for plural in ("pods", "rltrainingruns")}
    lives = spawn(lively())
    lives.until("/readyz", *HEALTHY)
    stay_alive(lives, seconds=STUCK_SECONDS + 2)
    for plural, probed in silent.items():
        probed.until("/healthz", 503, f"the watch of {plural} has brought nothing for")
        assert probed.process.probe("/readyz") == HEALTHY
    stay_alive(lives, seconds=1)


@pytest.mark.nightly("operator/src/rl_operator/process", "operator/src/rl_operator/cluster")
def test_an_unreachable_api_server_is_waited_for(spawn: Spawn) -> None:
    """Before the start as well as later; afterwards everything is as before."""
    early, late = spawn(AWAY), spawn(lively())
    late.until("/readyz", *HEALTHY)
    early.until("/readyz", 503, "the caches are not complete yet")
    late.proxy.hooks = AWAY
    stay_alive(early, late, seconds=2 * STUCK_SECONDS)
    assert early.process.probe("/readyz")[0] == 503

    early.proxy.hooks = late.proxy.hooks = lively()
    early.until("/readyz", *HEALTHY)
    stay_alive(early, late, seconds=STUCK_SECONDS + 2)


def test_a_reconcile_that_does_not_end_is_noticed(spawn: Spawn, lonely_plane: ControlPlane) -> None:
    hold, others = Hold(), lively()

    def before(call: ProxiedCall) -> Action:
        if call.method == "PATCH" and "/rlruntimes/" in call.path:
            return hold
        return others.before(call)

    name = f"stuck-{free_port()}"
    runtime = lonely_plane.admin.get("/apis/rl-operator.dev/v1alpha1/rlruntimes/tiny")
    body = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "spec": runtime["spec"]}
    lonely_plane.admin.post("/apis/rl-operator.dev/v1alpha1/rlruntimes", {**body, "metadata": {"name": name}})
    try:
        probed = spawn(Hooks(before=before))
        assert hold.reached.wait(60), "the runtime's status is never written"
        probed.until("/healthz", 503, "the reconcile of one runtime has been running for")
        hold.release.set()
        wait_for("it goes on", lambda: "has been running" not in probed.process.probe("/healthz")[1])
    finally:
        lonely_plane.admin.delete(f"/apis/rl-operator.dev/v1alpha1/rlruntimes/{name}")
