"""The tests' own proxy: transparent without hooks, and each possible result of a hook."""

import http.client
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.integration.cluster.control_plane import ADMIN_TOKEN, OPERATOR_TOKEN, ControlPlane
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.proxy import (
    Action,
    Answer,
    ApiProxy,
    Cut,
    Delay,
    Event,
    Hold,
    Hooks,
    Kill,
    ProxiedCall,
    error_event,
    refusal,
)
from tests.integration.cluster.runs import RunsNamespace

MAPS = "/api/v1/namespaces/default/configmaps"
NAMES = ("proxy-a", "proxy-b", "proxy-c")
HEADERS = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}

_numbers = itertools.count(1)


@pytest.fixture
def proxy(lonely_plane: ControlPlane) -> Iterator[ApiProxy]:
    with ApiProxy(lonely_plane.server) as proxy:
        yield proxy


def ask(proxy: ApiProxy, method: str, path: str, body: Any = None) -> tuple[int, Any, http.client.HTTPMessage]:
    connection = _connection(proxy)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, HEADERS)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers
    finally:
        connection.close()


def _connection(proxy: ApiProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.server.removeprefix("http://"), timeout=60)


# --- calls --------------------------------------------------------------------------------------------------------
def test_a_call_and_its_answer_pass_unchanged(lonely_plane: ControlPlane, proxy: ApiProxy) -> None:
    path = f"{MAPS}?fieldSelector=metadata.name%3Dkube-root-ca.crt&limit=5"
    status, answer, headers = ask(proxy, "GET", path)
    assert (status, answer["items"]) == (200, lonely_plane.admin.get(path)["items"])
    assert headers["Audit-Id"]
    assert proxy.calls == [
        ProxiedCall(1, "GET", MAPS, {"fieldSelector": "metadata.name=kube-root-ca.crt", "limit": "5"}, b"")
    ]


def test_a_refusal_of_the_api_server_passes_unchanged(proxy: ApiProxy) -> None:
    status, answer, _ = ask(proxy, "POST", MAPS, {"metadata": {"name": "Not A Name"}})
    assert (status, answer["reason"]) == (422, "Invalid")
    assert json.loads(proxy.calls[0].body) == {"metadata": {"name": "Not A Name"}}


def test_one_connection_serves_many_calls(proxy: ApiProxy) -> None:
    connection = _connection(proxy)
    for _ in range(3):
        connection.request("GET", "/version", None, HEADERS)
        assert json.loads(connection.getresponse().read())["major"] == "1"
    connection.close()
    assert [call.number for call in proxy.calls] == [1, 2, 3]


def test_simultaneous_calls_do_not_wait_for_each_other(proxy: ApiProxy) -> None:
    hold = Hold()
    proxy.hooks = Hooks(before=lambda call: hold if call.path == "/livez" else Delay(0))
    with ThreadPoolExecutor() as threads:
        held = threads.submit(_text, proxy, "/livez")
        assert hold.reached.wait(60)
        assert ask(proxy, "GET", "/version")[0] == 200
        assert not held.done()
        hold.release.set()
        assert held.result(10) == "ok"


def _text(proxy: ApiProxy, path: str) -> str:
    connection = _connection(proxy)
    try:
        connection.request("GET", path, None, HEADERS)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_hook_answers_instead_of_the_api_server(lonely_plane: ControlPlane, proxy: ApiProxy) -> None:
    proxy.hooks = Hooks(before=lambda _: refusal(429, "TooManyRequests", **{"Retry-After": "7"}))
    status, answer, headers = ask(proxy, "POST", MAPS, {"metadata": {"name": "never"}})
    assert (status, answer["reason"], headers["Retry-After"]) == (429, "TooManyRequests", "7")
    assert lonely_plane.admin.find(f"{MAPS}/never") is None


def test_a_hook_sees_and_replaces_an_answer(lonely_plane: ControlPlane, proxy: ApiProxy) -> None:
    seen: list[Any] = []

    def after(_: ProxiedCall, answer: Answer) -> Action:
        seen.append(json.loads(answer.body)["metadata"]["name"])
        return refusal(500, "InternalError")

    proxy.hooks = Hooks(after=after)
    status, _, _ = ask(proxy, "POST", MAPS, {"metadata": {"name": "proxy-made"}})
    assert (status, seen) == (500, ["proxy-made"])
    lonely_plane.admin.delete(f"{MAPS}/proxy-made")


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kills", [False, True], ids=["cut", "kill"])
def test_cut_and_kill_before_and_after_the_api_server_receives_it(
    lonely_plane: ControlPlane, proxy: ApiProxy, made: bool, kills: bool
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        action = Kill(victim.pid) if kills else Cut()
        proxy.hooks = Hooks(after=lambda _, __: action) if made else Hooks(before=lambda _: action)
        try:
            with pytest.raises(ConnectionError):
                ask(proxy, "POST", MAPS, {"metadata": {"name": "proxy-cut"}})
            assert (lonely_plane.admin.find(f"{MAPS}/proxy-cut") is not None) == made
            if kills:
                assert victim.wait(60) == -9
        finally:
            victim.kill()
            if made:
                lonely_plane.admin.delete(f"{MAPS}/proxy-cut")


def test_a_hooks_mistake_fails_the_test(lonely_plane: ControlPlane) -> None:
    def mistaken(_: ProxiedCall) -> Action:
        raise KeyError("a hook's own mistake")

    with pytest.raises(KeyError, match="own mistake"), ApiProxy(lonely_plane.server) as proxy:  # noqa: PT012 -- raised at the end of both
        proxy.hooks = Hooks(before=mistaken)
        with pytest.raises(ConnectionError):
            ask(proxy, "GET", "/version")


def test_an_unreachable_api_server_is_a_broken_connection() -> None:
    with ApiProxy("https://127.0.0.1:1") as proxy, pytest.raises(ConnectionError):
        ask(proxy, "GET", "/version")


# --- watches ------------------------------------------------------------------------------------------------------
@pytest.fixture
def version(lonely_plane: ControlPlane) -> Iterator[str]:
    """The version from which a watch reports that the three ConfigMaps were added."""
    admin = lonely_plane.admin
    version = admin.get(MAPS)["metadata"]["resourceVersion"]
    for name in NAMES:
        admin.post(MAPS, {"metadata": {"name": name}})
    yield version
    for name in NAMES:
        admin.delete(f"{MAPS}/{name}")


def watch(proxy: ApiProxy, version: str) -> list[str]:
    """A summary of what a watch of one second reports until it ends or breaks."""
    connection = _connection(proxy)
    try:
        connection.request("GET", f"{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}", None, HEADERS)
        return [_in_short(json.loads(line)) for line in connection.getresponse()]
    finally:
        connection.close()


def _in_short(event: Event) -> str:
    thing = event["object"]
    return str(thing["code"]) if event["type"] == "ERROR" else thing["metadata"]["name"].removeprefix("proxy-")


def _swapped() -> Callable[[ProxiedCall, Event], Sequence[Event]]:
    """The first two events are swapped."""
    kept: list[Event] = []

    def event(_: ProxiedCall, event: Event) -> Sequence[Event]:
        kept.append(event)
        return {1: (), 2: kept[::-1]}.get(len(kept), (event,))

    return event


Way = Callable[[ProxiedCall, Event], Sequence[Event | Action]]

ROUTES: dict[str, tuple[Way, list[str]]] = {
    "pass": (lambda _, event: (event,), ["a", "b", "c"]),
    "drop": (lambda _, event: () if _in_short(event) == "b" else (event,), ["a", "c"]),
    "repeat": (lambda _, event: (event, event), ["a", "a", "b", "b", "c", "c"]),
    "delay": (lambda _, event: (Delay(0.05), event), ["a", "b", "c"]),
    "reorder": (_swapped(), ["b", "a", "c"]),
    "cut": (lambda _, event: (event, Cut()), ["a"]),
    "expire": (lambda _, __: (error_event(410, "Expired"), Cut()), ["410"]),
}


@pytest.mark.parametrize(("way", "heard"), ROUTES.values(), ids=ROUTES)
def test_a_watch_is_forwarded_event_by_event(proxy: ApiProxy, version: str, way: Way, heard: list[str]) -> None:
    proxy.hooks = Hooks(event=way)
    assert watch(proxy, version) == heard
    assert proxy.calls[0].watch


def test_a_held_watch_continues_when_it_is_released(proxy: ApiProxy, version: str) -> None:
    hold = Hold()
    proxy.hooks = Hooks(event=lambda _, event: (hold, event))
    with ThreadPoolExecutor() as threads:
        heard = threads.submit(watch, proxy, version)
        assert hold.reached.wait(60)
        hold.release.set()
        assert heard.result(10) == ["a", "b", "c"]


# --- operators ----------------------------------------------------------------------------------------------------
def test_an_operator_completes_a_run_through_it(lonely_plane: ControlPlane, proxy: ApiProxy) -> None:
    """Everything in the API server's audit log about it went this way."""
    namespace = f"proxied-{next(_numbers)}"
    lonely_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    operator = OperatorProcess(lonely_plane.kubeconfig(OPERATOR_TOKEN, proxy.server), *FAST, "--namespace", namespace)
    try:
        operator.start()
        runs = RunsNamespace(lonely_plane, namespace)
        runs.apply()
        runs.succeed(runs.until_pod())
    finally:
        operator.close()
    in_there = [call for call in proxy.calls if f"/namespaces/{namespace}/" in call.path]
    through = [call.method for call in in_there if call.method != "GET" and not call.path.endswith("/events")]
    assert len(through) == len(runs.writes())
