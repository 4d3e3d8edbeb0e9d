import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.rl_operator.local.pod_examples import (
    SERVE_OPS,
    Node,
    container,
    pod,
    probe,
    sidecar,
    start_holder,
    state_of,
)

from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.status.attempt.attempt_fate import Fate, classify
from rl_operator.status.observed.observation import observe_pod

MakeNode = Callable[..., Node]

ENDS_ON_SIGTERM = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "while True: time.sleep(0.1)"  # a signal that comes just before a sleep does not end it
)
IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"


async def test_a_pod_runs_to_its_end(make_node: MakeNode) -> None:
    node = make_node()
    ended = await node.run(
        sidecar(), container("trainer", "print('trained')"), container("environment", "print('served')")
    )
    assert ended["status"]["phase"] == "Succeeded"
    for name in ("trainer", "environment"):
        terminated = state_of(ended, name)["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert state_of(ended, "api")["state"]["terminated"]["exitCode"] == 0
    assert node.log("trainer") == "trained\n"


async def test_the_sidecar_answers_before_the_others_start_and_ends_after_them(
    make_node: MakeNode, tmp_path: Any
) -> None:
    order = tmp_path / "order"
    note = f"def note(word): open({str(order)!r}, 'a').write(word + '\\n')\n"
    serve = note + SERVE_OPS.replace('print("serving", flush=True)', "note('api up')").replace(
        "lambda *_: sys.exit(0)", "lambda *_: (note('api down'), sys.exit(0))"
    )
    regular = note + "import sys, time; note('regular up'); time.sleep(0.3); note('regular down')"
    node = make_node()
    await node.run(sidecar(serve), container("trainer", regular), container("environment", regular))
    regular_lines = ["regular up", "regular up", "regular down", "regular down"]
    assert order.read_text().splitlines() == ["api up", *regular_lines, "api down"]


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [
        pytest.param("raise SystemExit(3)", 3, "Error", id="exit code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, "Error", id="SIGKILL"),
        pytest.param("import os; os.kill(os.getpid(), 11)", 139, "Error", id="SIGSEGV"),
    ],
)
async def test_how_a_failed_container_ends(make_node: MakeNode, code: str, exit_code: int, reason: str) -> None:
    node = make_node()
    ended = await node.run(container("trainer", code))
    terminated = state_of(ended, "trainer")["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], ended["status"]["phase"]) == (exit_code, reason, "Failed")


@pytest.mark.parametrize(
    ("code", "policy", "message"),
    [
        pytest.param("open(M, 'w').write('told'); raise SystemExit(1)", "FallbackToLogsOnError", "told", id="written"),
        pytest.param("print('last words'); raise SystemExit(1)", "FallbackToLogsOnError", "last words\n", id="log"),
        pytest.param("print('last words')", "FallbackToLogsOnError", "", id="log of a success"),
        pytest.param("print('last words'); raise SystemExit(1)", "File", "", id="file only"),
        pytest.param(
            "print('x' * 9000 + 'end'); raise SystemExit(1)", "FallbackToLogsOnError", "x" * 2044 + "end\n", id="long"
        ),
    ],
)
async def test_termination_messages(make_node: MakeNode, code: str, policy: str, message: str) -> None:
    written = "import os; M = os.environ['RL_RESULT_FILE']\n" + code
    env = [{"name": "RL_RESULT_FILE", "value": "/dev/termination-log"}]
    node = make_node()
    node.create(pod(container("trainer", written, terminationMessagePolicy=policy, env=env)))
    assert state_of(await node.end(), "trainer")["state"]["terminated"]["message"] == message


async def test_readiness_follows_the_probe(make_node: MakeNode) -> None:
    switch = "import os, http.server\n" + SERVE_OPS.replace(
        "self.send_response(200)", "self.send_response(503 if os.path.exists('unready') else 200)"
    )
    node = make_node()
    node.create(pod(container("trainer", switch, readinessProbe=probe("trainer"))))
    ready = await node.until(lambda p: state_of(p, "trainer")["ready"], "the trainer to be ready")
    assert {c["type"]: c["status"] for c in ready["status"]["conditions"]}["Ready"] == "True"
    unready = node.store.layout.pod("default", "run-00000-1").working_folder("trainer") / "unready"
    unready.touch()
    await node.until(lambda p: not state_of(p, "trainer")["ready"], "the trainer to be unready")


async def test_deletion_lets_containers_end_in_order(make_node: MakeNode) -> None:
    node = make_node()
    node.create(
        pod(
            sidecar(),
            container("trainer", ENDS_ON_SIGTERM.replace("while", "print('up', flush=True)\nwhile")),
        )
    )
    await node.until_log("trainer", "up")
    node.delete()
    deadline = time.monotonic() + 10
    while node.read() is not None:
        assert time.monotonic() < deadline, "the pod was not removed within 10 s of its deletion"
        await asyncio.sleep(0.05)


async def test_a_container_that_ignores_sigterm_is_killed_after_the_grace_period(make_node: MakeNode) -> None:
    manifest = pod(
        container("trainer", IGNORES_SIGTERM.replace("'up'", "'up', flush=True")), terminationGracePeriodSeconds=1
    )
    manifest["metadata"]["finalizers"].append("keep")
    node = make_node()
    node.create(manifest)
    await node.until_log("trainer", "up")
    begun = time.monotonic()
    node.delete()
    ended = await node.end()
    assert state_of(ended, "trainer")["state"]["terminated"]["exitCode"] == 137
    assert 0.9 < time.monotonic() - begun < 20


LEFT_BEHIND = {
    "a child": """
import subprocess
told(subprocess.Popen(["sleep", "60"]).pid)
""",
    "a pool's, by a kill": """
import multiprocessing, os, signal, time
from concurrent.futures import ProcessPoolExecutor
pool = ProcessPoolExecutor(1)
pool.submit(time.sleep, 60)
told(multiprocessing.active_children()[0].pid)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.mark.parametrize("code", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
async def test_processes_left_by_a_container_die_with_it(make_node: MakeNode, tmp_path: Any, code: str) -> None:
    pid_file = tmp_path / "pid"
    code = f"from pathlib import Path\ndef told(pid): Path({str(pid_file)!r}).write_text(str(pid))\n{code}"
    node = make_node()
    await node.run(container("trainer", code))
    assert not _is_alive(int(pid_file.read_text()))


async def test_a_sidecar_that_ends_is_restarted(make_node: MakeNode) -> None:
    once = "import os, sys\nif not os.path.exists('second'): open('second', 'w'); sys.exit('first life')\n" + SERVE_OPS
    node = make_node()
    ended = await node.run(sidecar(once), container("trainer", "print('trained')"))
    assert state_of(ended, "api")["restartCount"] == 1
    assert state_of(ended, "trainer")["state"]["terminated"]["exitCode"] == 0


SECRET = {"name": "TINKER_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tinker", "key": "api-key"}}}


@pytest.mark.parametrize(
    ("fields", "reason", "said"),
    [
        pytest.param({"env": [SECRET]}, "CreateContainerConfigError", "TINKER_API_KEY is not set", id="a key"),
        pytest.param({"command": ["absent"]}, "CreateContainerError", "'absent' is not there; install", id="a program"),
    ],
)
async def test_a_container_waits_for_what_is_missing_and_says_what(
    make_node: MakeNode, fields: dict[str, Any], reason: str, said: str
) -> None:
    node = make_node()
    node.create(pod(sidecar(), {**container("trainer", "pass"), **fields}))
    refused = await node.until(lambda p: reason in json.dumps(state_of(p, "trainer")), "the trainer to be refused")
    assert said in state_of(refused, "trainer")["state"]["waiting"]["message"]
    assert refused["status"]["phase"] == "Pending"


async def test_a_backend_that_does_not_start_ends_the_attempt(make_node: MakeNode) -> None:
    async def broken(_pod: Any, _know: Any) -> dict[str, str]:
        raise TargetUnreachableError("the Tinker service ended while starting: no torch")

    node = make_node(backend=broken)
    ended = observe_pod(
        await node.run(sidecar(), container("trainer", "pass"), container("environment", ENDS_ON_SIGTERM))
    )
    assert (ended.phase, ended.disruption) == ("Failed", "BackendNotStarted")
    assert ended.message == "the Tinker service ended while starting: no torch"


async def test_a_pod_can_be_deleted_while_its_backend_starts(make_node: MakeNode) -> None:
    async def slow(_pod: Any, _know: Any) -> dict[str, str]:
        await asyncio.sleep(60)
        return {}

    node = make_node(backend=slow)
    manifest = pod(sidecar(), container("trainer", "pass"), container("environment", ENDS_ON_SIGTERM))
    manifest["metadata"]["finalizers"].append("keep")
    node.create(manifest)
    await node.until(lambda p: "running" in state_of(p, "environment")["state"], "the environment to run")
    node.delete()
    ended = await node.end()
    assert "did not run" in state_of(ended, "trainer")["state"]["terminated"]["message"]


async def test_a_trainer_loads_while_its_backend_starts(make_node: MakeNode) -> None:
    """It is told where the backend will be; if that does not start after all, the attempt ends."""

    async def starting(_pod: Any, know: Any) -> dict[str, str]:
        know({"TINKER_BASE_URL": "http://127.0.0.1:1"})
        await asyncio.wait_for(trainer_runs.wait(), 60)
        raise TargetUnreachableError("the Tinker service ended while starting: no torch")

    trainer_runs, node = asyncio.Event(), make_node(backend=starting)
    show = "import os; print(os.environ['TINKER_BASE_URL'], flush=True)\n" + ENDS_ON_SIGTERM
    url = {"name": "TINKER_BASE_URL", "value": "http://elsewhere"}
    node.create(pod(sidecar(), container("trainer", show, env=[url])))
    await node.until(lambda _: "127.0.0.1:1" in node.log("trainer"), "the trainer to run")
    trainer_runs.set()
    ended = observe_pod(await node.end())
    assert (ended.phase, ended.disruption) == ("Failed", "BackendNotStarted")


async def test_an_error_in_the_kubelet_ends_the_pod(make_node: MakeNode) -> None:
    async def faulty(_pod: Any, _know: Any) -> dict[str, str]:
        raise KeyError("ownerReferences")

    node = make_node(backend=faulty)
    show_pid = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    serve = sidecar("import time; time.sleep(0.5)\n" + SERVE_OPS)
    ended = observe_pod(await node.run(serve, container("trainer", "pass"), container("environment", show_pid)))
    assert (ended.phase, ended.disruption) == ("Failed", "KubeletFailed")
    assert "ownerReferences" in ended.message
    assert not [pid for pid in node.log("environment").split() if _is_alive(int(pid))]


async def test_the_backend_overrides_the_trainers_variables_only(make_node: MakeNode) -> None:
    async def shared(_pod: Any, _know: Any) -> dict[str, str]:
        return {"TINKER_BASE_URL": "http://127.0.0.1:1", "TINKER_API_KEY": "tml-shared"}

    show = "import os; print(os.environ.get('TINKER_BASE_URL'), os.environ.get('TINKER_API_KEY'))"
    env = [
        {"name": "TINKER_BASE_URL", "value": "http://tinker-service:8005"},
        {"name": "TINKER_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tinker", "key": "key"}}},
    ]
    node = make_node(caller={"TINKER_API_KEY": "tml-mine"}, backend=shared)
    await node.run(container("trainer", show, env=env), container("environment", show))
    assert node.log("trainer") == "http://127.0.0.1:1 tml-shared\n"
    assert node.log("environment") == "None None\n"


async def test_the_pods_own_deadline_fails_it(make_node: MakeNode) -> None:
    node = make_node()
    ended = await node.run(container("trainer", "import time; time.sleep(60)"), activeDeadlineSeconds=1)
    assert ended["status"]["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("items", "files"),
    [
        pytest.param([], {"config.yaml": "a: 1", "pod.json": "{}"}, id="all keys"),
        pytest.param([{"key": "config.yaml", "path": "c.yaml"}], {"c.yaml": "a: 1"}, id="the listed ones"),
    ],
)
async def test_config_maps_become_files(make_node: MakeNode, items: list[Any], files: dict[str, str]) -> None:
    node, data = make_node(), {"config.yaml": "a: 1", "pod.json": "{}"}
    node.store.create({"kind": "ConfigMap", "metadata": {"namespace": "default", "name": "config"}, "data": data})
    show_files = (
        "import json, pathlib, sys\n"
        "print(json.dumps({path.name: path.read_text() for path in pathlib.Path(sys.argv[1]).iterdir()}))"
    )
    show = container("trainer", show_files, args=["/etc/rl"], volumeMounts=[{"name": "config", "mountPath": "/etc/rl"}])
    await node.run(show, volumes=[{"name": "config", "configMap": {"name": "config", "items": items}}])
    assert json.loads(node.log("trainer")) == files


async def test_a_pod_left_by_another_supervisor_is_lost_with_its_last_result(make_node: MakeNode) -> None:
    node = make_node()
    manifest = pod(sidecar(), container("trainer", "pass"))
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    result = node.store.layout.pod("default", "run-00000-1").termination_message("trainer")
    result.parent.mkdir(parents=True)
    result.write_text('{"outcome": "running", "statePath": "tinker://x/weights/3", "stepsTrained": 3, "totalSteps": 9}')
    node.create(manifest)
    lost = observe_pod(await node.end())
    assert (lost.phase, lost.disruption) == ("Failed", "SupervisorLost")
    assert lost.result is not None
    assert lost.result.state_path == "tinker://x/weights/3"
    assert {c.exit_code for c in lost.containers} == {137}


async def test_an_ended_trainer_keeps_its_result_when_its_supervisor_vanishes(make_node: MakeNode) -> None:
    node = make_node()
    manifest = pod(sidecar(), container("trainer", "pass"), container("environment", "pass"))
    message = (
        '{"outcome": "succeeded", "samplerPath": "tinker://x/sampler_weights/9", "stepsTrained": 9, "totalSteps": 9}'
    )
    end = {"exitCode": 0, "reason": "Completed", "message": message, "finishedAt": "2026-01-01T00:00:00Z"}
    trainer = {"name": "trainer", "restartCount": 0, "state": {"terminated": end}}
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [trainer]}
    node.create(manifest)
    lost = observe_pod(await node.end())
    assert {c.name: c.exit_code for c in lost.containers} == {"api": 137, "trainer": 0, "environment": 137}
    assert classify(lost, stop_asked=False).fate is Fate.SUCCEEDED


async def test_processes_that_outlived_supervisor_and_reaper_are_ended(make_node: MakeNode) -> None:
    node = make_node()
    orphan = start_holder(node.store.layout.pod("default", "run-00000-1").lock("trainer"))
    manifest = pod(container("trainer", "pass"))
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    node.create(manifest)
    await node.end()
    assert orphan.wait(60) == -9


async def test_a_pod_waits_until_its_folders_can_be_created(make_node: MakeNode) -> None:
    """On a full disk nothing can be created; a file in the way stands in for that."""
    node = make_node()
    in_the_way = node.store.layout.pod("default", "run-00000-1").root
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    node.create(pod(sidecar(), container("trainer", "print('trained')")))
    waits = await node.until(lambda p: "CreateContainerError" in json.dumps(state_of(p, "api")), "the api to wait")
    assert "it continues when there is room" in state_of(waits, "api")["state"]["waiting"]["message"]
    in_the_way.unlink()
    assert (await node.end())["status"]["phase"] == "Succeeded"


async def test_a_pod_that_waits_for_disk_space_can_be_deleted(make_node: MakeNode) -> None:
    node = make_node()
    in_the_way = node.store.layout.pod("default", "run-00000-1").root
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    manifest = pod(sidecar(), container("trainer", "pass"))
    manifest["metadata"]["finalizers"].append("keep")
    node.create(manifest)
    node.delete()
    ended = observe_pod(await node.end())
    assert (ended.phase, ended.disruption) == ("Failed", None)


async def test_an_environments_pod_finds_its_attempts_data_ports(make_node: MakeNode) -> None:
    """What a Service does on a cluster. Whatever the manifests say, everything is on loopback."""
    node = make_node()
    show = "import os; print(*(os.environ[n] for n in ('RL_API_URL', 'RL_INFERENCE_URL', 'RL_OPS_PORT')), flush=True)"
    exposed = [{"name": "RL_API_URL", "value": "http://0.0.0.0:8000"}]
    remote = [{"name": "RL_API_URL", "value": "http://run-00000.default.svc:8000"}]
    forever = f"{show}; import time; time.sleep(60)"
    run_pod = _of_attempt(pod(container("trainer", forever, env=exposed)), "run-00000-1", "training", "1")
    node.create(run_pod)
    await node.until_log("trainer", "\n")
    for name, attempt in (("run-00000-1-env-0-0", "1"), ("run-00000-2-env-0-0", "2")):
        node.create(_of_attempt(pod(container("environment", show, env=remote)), name, "environment", attempt))
    await node.until(lambda _: all(_ended(node, f"run-00000-{n}-env-0-0") for n in (1, 2)), "the environments' ends")
    trainer = node.log("trainer").split()
    same, other = (node.log("environment", f"run-00000-{attempt}-env-0-0").split() for attempt in (1, 2))
    assert same[:2] == trainer[:2]
    assert len({trainer[2], same[2], other[2]}) == 3
    assert not set(other[:2]) & set(trainer[:2])
    assert all(url.startswith("http://127.0.0.1:") for url in (*trainer[:2], *same[:2], *other[:2]))


def _of_attempt(manifest: dict[str, Any], name: str, component: str, attempt: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component, "rl-operator.dev/attempt": attempt}
    manifest["metadata"] |= {"name": name, "labels": manifest["metadata"]["labels"] | labels}
    manifest["metadata"]["ownerReferences"] = [{"uid": "a run's"}]
    return manifest


def _ended(node: Node, pod_name: str) -> bool:
    found = node.store.get("Pod", "default", pod_name) or {}
    return found.get("status", {}).get("phase") == "Succeeded"


async def test_closing_the_kubelet_leaves_no_process(make_node: MakeNode) -> None:
    node = make_node()
    show_pid = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    node.create(pod(container("trainer", show_pid)))
    await node.until_log("trainer", "\n")
    await node.kubelet.close()
    assert not _is_alive(int(node.log("trainer")))
    assert not node.kubelet.busy


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not listed.stdout.startswith("Z")
