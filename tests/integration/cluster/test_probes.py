"""The probes of a real process: what they fail at, and what they do not fail at."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.cluster.control_plane import ControlPlane, free_port
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.proxy import Action, Answer, ApiProxy, Hold, Hooks, Pass, ProxiedCall

STUCK_SECONDS = 8
FLAGS = ("--namespace", "default", "--stuck-seconds", str(STUCK_SECONDS), "--request-seconds", "50")
"""A namespace of its own, so that it is in nobody's way."""


@dataclass(frozen=True)
class Probed:
    proxy: ApiProxy
    process: OperatorProcess

    def until(self, path: str, code: int, sentence: str) -> None:
        def look() -> bool:
            seen = self.process.probe(path)
            return seen[0] == code and sentence in seen[1]

        wait_for(f"{path} answers {code} and {sentence!r}", look, seconds=30)

    def stays_alive(self, seconds: float) -> None:
        stays("/healthz answers 200", lambda: self.process.probe("/healthz") == (200, "ok"), seconds=seconds)


@pytest.fixture
def probed(lonely_plane: ControlPlane) -> Iterator[Probed]:
    with ApiProxy(lonely_plane.server) as proxy:
        process = OperatorProcess(lonely_plane.kubeconfig(server=proxy.server), *FAST, *FLAGS)
        yield Probed(proxy, process)
        process.close()


def bookmark(call: ProxiedCall) -> Answer:
    """A watch that brings a bookmark and ends: the API server would take a minute."""
    plural = call.path.rpartition("/")[2]
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": call.query["resourceVersion"]}}}
    return Answer(200, json.dumps({**event, "kind": plural}).encode() + b"\n")


def lively(*silent: str) -> Hooks:
    """Every watch brings bookmarks all the time, those of these resources bring nothing at all."""

    def before(call: ProxiedCall) -> Action:
        if not call.watch or call.path.rpartition("/")[2] in silent:
            return Pass()
        return bookmark(call)

    return Hooks(before=before, event=lambda _call, _event: ())


@pytest.mark.parametrize("silent", ["pods", "rltrainingruns"], ids=["our own watch", "kopf's watch"])
def test_a_watch_that_is_open_and_silent_is_no_life(probed: Probed, silent: str) -> None:
    probed.proxy.hooks = lively()
    probed.process.start()
    probed.stays_alive(STUCK_SECONDS + 2)
    probed.process.kill()

    probed.proxy.hooks = lively(silent)
    probed.process.start()
    probed.until("/healthz", 503, f"the watch of {silent} has brought nothing for")
    assert probed.process.probe("/readyz") == (200, "ok")


def test_an_api_server_that_is_away_is_waited_for(probed: Probed) -> None:
    """Before the start as well as later; then it is as it was."""
    here = lively()
    away = Hooks(before=lambda _call: Answer(503, b'{"kind": "Status", "code": 503, "message": "away"}'))
    probed.proxy.hooks = away
    probed.process.spawn()
    probed.until("/readyz", 503, "the caches are not complete yet")
    probed.stays_alive(STUCK_SECONDS + 2)

    probed.proxy.hooks = here
    probed.until("/readyz", 200, "ok")
    probed.proxy.hooks = away
    probed.stays_alive(2 * STUCK_SECONDS)
    probed.proxy.hooks = here
    probed.stays_alive(STUCK_SECONDS + 2)


def test_a_reconcile_that_does_not_come_to_an_end_is_seen(probed: Probed, lonely_plane: ControlPlane) -> None:
    hold, others = Hold(), lively()

    def before(call: ProxiedCall) -> Action:
        if call.method == "PATCH" and "/rlruntimes/" in call.path:
            return hold
        return others.before(call)

    probed.proxy.hooks = Hooks(before=before)
    name = f"stuck-{free_port()}"
    runtime = lonely_plane.admin.get("/apis/rl-operator.dev/v1alpha1/rlruntimes/tiny")
    body = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "spec": runtime["spec"]}
    lonely_plane.admin.post("/apis/rl-operator.dev/v1alpha1/rlruntimes", {**body, "metadata": {"name": name}})
    try:
        probed.process.start()
        assert hold.reached.wait(60), "the runtime's status is never written"
        probed.until("/healthz", 503, "the reconcile of one runtime has been running for")
        hold.release.set()
        wait_for("it goes on", lambda: "has been running" not in probed.process.probe("/healthz")[1])
    finally:
        lonely_plane.admin.delete(f"/apis/rl-operator.dev/v1alpha1/rlruntimes/{name}")
