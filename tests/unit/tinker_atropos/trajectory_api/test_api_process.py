"""The api as a process: killed, restarted, stopped, and in a bad environment."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ports import free_port
from tests.small_disks import mounted
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build


def send_groups(http: httpx.Client, groups: list[dict[str, Any]]) -> None:
    for group in groups:
        assert http.post("/scored_data", json=group).status_code == 200


def first_tokens(http: httpx.Client) -> list[int]:
    tokens = []
    while (batch := http.get("/batch").json()["batch"]) is not None:
        tokens += [group["tokens"][0][0] for group in batch]
    return tokens


def test_a_killed_worker_returns_within_a_second_and_no_client_is_refused(api_process, tmp_path) -> None:
    with api_process(tmp_path) as api:
        api.http.post("/register", json=build.trainer_registration())
        send_groups(api.http, [build.group(first_token=n) for n in range(4)])
        api.http.get("/batch")
        os.kill(api.status()["worker"]["pid"], signal.SIGKILL)
        assert api.http.get("/info").json()["batch_size"] == 4, "the connection waited in the open port"
        assert api.status()["worker"]["restarts"] == 1
        assert "rl_api_worker_restarts_total 1.0" in api.ops.get("/metrics").text
        assert first_tokens(api.http) == [2, 3]


def test_sigterm_ends_cleanly_within_a_second_even_with_a_waiting_trainer(api_process, tmp_path) -> None:
    with api_process(tmp_path) as api, socket.create_connection(("127.0.0.1", api.http.base_url.port)) as waiting:
        api.http.post("/register", json=build.trainer_registration())
        waiting.sendall(b"GET /batch?wait=30 HTTP/1.1\r\nhost: a\r\n\r\n")
        build.eventually("the trainer waits", lambda: api.status()["started"])
        exit_code, seconds = api.stop()
    assert exit_code == 0
    assert seconds < 25, "a tenth of a second on an idle machine; the trainer would wait for 30"


def test_a_worker_that_cannot_start_ends_the_api_with_a_message(api_process, tmp_path) -> None:
    with api_process(tmp_path) as api:
        for life in range(5):
            build.eventually(f"life {life} of the worker", lambda life=life: api.status()["worker"]["restarts"] == life)
            os.kill(api.status()["worker"]["pid"], signal.SIGSEGV)
        assert api.process.wait(60) == 1
        assert api.process.stderr is not None
        assert "the api's worker ended 5 times in a row within 5 s of its start" in api.process.stderr.read()


@pytest.mark.parametrize("variable", ["RL_API_URL", "RL_OPS_PORT"])
def test_a_port_in_use_is_named_with_its_variable(api_process, tmp_path, variable) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"RL_API_URL": free_port(), "RL_OPS_PORT": free_port(), variable: port}
        addresses = {
            "RL_API_URL": f"http://127.0.0.1:{ports['RL_API_URL']}",
            "RL_OPS_HOST": "127.0.0.1",
            "RL_OPS_PORT": str(ports["RL_OPS_PORT"]),
        }
        ended = subprocess.run(
            [*build.API_COMMAND, tmp_path],
            env={**os.environ, **addresses},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use; end its owner or set {variable} to another port" in ended.stderr


def test_a_journal_that_does_not_open_is_reported_once(api_process, tmp_path) -> None:
    (tmp_path / "file").touch()
    with api_process(tmp_path / "file") as api:
        assert api.process.wait(60) == 1
        assert api.process.stderr is not None
        assert api.process.stderr.read().count("cannot make the journal's folder") == 1


@pytest.fixture
def disk_of_2_mib(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "2m") as disk:
        yield disk


def test_a_full_disk_delays_posts_loses_nothing_and_recovers(api_process, disk_of_2_mib) -> None:
    with api_process(disk_of_2_mib) as api, ThreadPoolExecutor(1) as sender:
        api.http.post("/register", json=build.trainer_registration(num_steps=1000))
        accepted = 0
        while True:
            waiting = sender.submit(send_padded, api.http, build.group(first_token=accepted))
            build.eventually("answered or held", lambda sent=waiting: sent.done() or api.status()["heldPosts"])
            if not waiting.done():
                break
            accepted += 1
        health = api.ops.get("/healthz")
        assert (health.status_code, "no room is left in" in health.text) == (503, True)
        assert "no room is left in" in api.status()["journal"]["error"]
        assert api.status()["queue"]["queued"]["groups"] == accepted > 4

        subprocess.run(["mount", "-o", "remount,size=16m", disk_of_2_mib], check=True)
        assert waiting.result(20).status_code == 200
        assert api.ops.get("/healthz").status_code == 200
        os.kill(api.status()["worker"]["pid"], signal.SIGKILL)
        assert first_tokens(api.http) == list(range((accepted + 1) // 2 * 2))


def send_padded(http: httpx.Client, group: dict[str, Any]) -> httpx.Response:
    return http.post("/scored_data", content=json.dumps(group | {"images": "x" * 50_000}))
