"""An OpenEnv server as a process of its environment's pod: its port, its restarts, its end."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from tests.unit.rl_operator.local.pod_examples import Node, container, pod, state_of

SERVER = Path("tests/data/programs/openenv_server.py").absolute()
PROBE = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 60}
PLAY = """
import os, time, urllib.request
print(urllib.request.urlopen(os.environ["RL_OPENENV"] + "/health").read().decode(), flush=True)
while not os.path.exists("leave"):
    time.sleep(0.05)
"""

MakeNode = Callable[..., Node]


def server(mode: str) -> dict[str, Any]:
    words = [sys.executable, str(SERVER), mode]
    env = [{"name": "PORT", "value": "8000"}, {"name": "TMPDIR", "value": "/tmp"}]
    mounts = [{"name": "openenv-tmp", "mountPath": "/tmp"}]
    rest = {"restartPolicy": "Always", "startupProbe": PROBE, "terminationMessagePolicy": "FallbackToLogsOnError"}
    return {"name": "openenv", "image": "", "command": words, "env": env, "volumeMounts": mounts, **rest}


def player() -> dict[str, Any]:
    env = [
        {"name": "RL_OPENENV_PORT", "value": "8000"},
        {"name": "RL_OPENENV", "value": "http://127.0.0.1:$(RL_OPENENV_PORT)"},
    ]
    return container("environment", PLAY, env=env)


def leave(node: Node) -> None:
    (node.store.layout.pod("default", "run-00000-1").working_folder("environment") / "leave").touch()


async def test_the_environment_starts_after_the_server_answered_and_finds_it(make_node: MakeNode) -> None:
    node = make_node()
    node.create(pod(server("plain"), player(), volumes=[{"name": "openenv-tmp", "emptyDir": {}}]))
    await node.until(lambda p: "running" in state_of(p, "environment")["state"], "the environment to start")
    await node.until(lambda p: state_of(p, "openenv")["ready"], "the server to be ready")
    await node.until(lambda _: "healthy" in node.log("environment"), "an answer")
    leave(node)
    ended = await node.end()
    assert ended["status"]["phase"] == "Succeeded"
    assert state_of(ended, "openenv")["state"]["terminated"]["exitCode"] == 0, "it ends after the environment"


async def test_a_server_that_died_is_started_again_at_the_same_port(make_node: MakeNode) -> None:
    node = make_node()
    node.create(pod(server("dies"), player(), volumes=[{"name": "openenv-tmp", "emptyDir": {}}]))
    await node.until(lambda _: "healthy" in node.log("environment"), "an answer")
    port = int(node.log("openenv").split()[-1])
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://127.0.0.1:{port}/ws") as socket:
        for seed in range(3):
            await socket.send_json({"type": "reset", "data": {"seed": seed}})
        kinds = [(await socket.receive(timeout=30)).type for _ in range(3)]
    assert kinds[:2] == [aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.TEXT]
    assert kinds[2] is not aiohttp.WSMsgType.TEXT, "it ended with its third reset"
    await node.until(lambda p: state_of(p, "openenv")["restartCount"] == 1, "the restart")
    await node.until(lambda p: state_of(p, "openenv")["ready"], "the server to be ready again")
    assert node.log("openenv").split().count(str(port)) == 2
    leave(node)
    assert (await node.end())["status"]["phase"] == "Succeeded"


async def test_a_server_that_never_serves_keeps_the_environment_from_starting(make_node: MakeNode) -> None:
    node = make_node()
    node.create(pod(server("crashes"), player(), volumes=[{"name": "openenv-tmp", "emptyDir": {}}]))
    crashed = await node.until(lambda p: state_of(p, "openenv")["restartCount"] > 0, "a crash")
    last = state_of(crashed, "openenv")["lastState"]["terminated"]
    assert "there is no board to play on" in last["message"]
    assert "waiting" in state_of(crashed, "environment")["state"]
