"""What the page costs: `rlctl ui`, and `rlctl tools serve --ui`. Prints a table; asserts nothing.

    python -m tests.benchmarks.ui_bench [--runs 1000] [--viewers 20] [--seconds 20] [--only local|cluster|rollouts]

* local: a state folder with runs that nobody trains. First the pages, one after the other; then viewers with an open
  stream, who fetch the rows after every change as the page's script does, while 10 runs change each second.
* cluster: the same in front of an API server, where every viewer has a token of their own; at last with agents, who use
  the tools over MCP.
* rollouts: all viewers open the page of a step at once, each with another order of its groups.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tests.benchmarks.meter import Stopwatch, forget_peak, peak_mib, resident_mib
from tests.benchmarks.rollouts_bench import MEGABYTE, step_file
from tests.benchmarks.rollouts_bench import made_run as made_rollouts
from tests.benchmarks.ui_viewers import AGENTS, Headers, Seen, Server, agents, look, open_all
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import API_SERVER, ControlPlane, find_program

RLCTL = Path(sys.executable).with_name("rlctl")
CHANGES_A_SECOND = 10
REPEATED = 20
STEPS = {"128 rollouts of 512 tokens": (16, 512), "128 rollouts of 16,384 tokens": (16, 16_384)}
"""Groups of 8, and the tokens of each rollout."""

ORDERS = ("", "reward", "reward-asc", "length", "gap")
Write = Callable[[int, int], None]
"""A run of that number, in that version."""


def made_run(number: int, version: int = 1) -> dict[str, Any]:
    step = 40 + version
    phase = ("Succeeded", "Failed", "Running", "Stopped")[number % 4]
    history = [{"step": 100 * i, "rolloutReward": 0.1 * i + number % 7 / 100, "loss": 0.01 * i} for i in range(10)]
    conditions = [
        {"type": kind, "status": "True", "reason": "AsPlanned", "message": "the run does what it is to do",
         "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Accepted", "Ready", "Progressing", "Finished")
    ]  # fmt: skip
    metrics = {"rolloutReward": 0.8, "heldOut": {"value": 0.9}, "baseline": {"value": 0.5}} | {
        f"metric{i}": 0.1 * i for i in range(20)
    }
    metadata = {
        "namespace": "default",
        "name": f"run-{number:04}",
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": f"2026-01-{1 + number % 28:02}T00:00:00Z",
        "labels": {"rl-operator.dev/experiment": f"grid-{number % 20}"},
    }
    status = {
        "phase": phase,
        "message": f"Step {step} of 400: the reward is rising, and nothing needs to be done about it",
        "progress": {"step": step, "totalSteps": 400, "percent": step // 4},
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": conditions,
        "history": history,
        "metrics": metrics,
    }
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": 400, "group_size": 8}}
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def write_run(state: Path, number: int, version: int = 1) -> None:
    """As the store does, without waiting for the disk."""
    path = state / "objects" / "rltrainingrun" / "default" / f"run-{number:04}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(made_run(number, version), indent=1), encoding="utf-8")
    draft.replace(path)


@contextmanager
def started(
    state: Path, *command: str, env_vars: Mapping[str, str] = {}, headers: dict[str, str] | None = None
) -> Iterator[Server]:
    """`headers`: of its caller; None: they are found in what it prints or writes."""
    variables = {**os.environ, "RL_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1", **env_vars}
    with subprocess.Popen([str(RLCTL), *command], env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if command[0] == "ui":
                address, _, token = process.stdout.readline().rpartition(" ")[2].strip().partition("/?token=")
                port = address.rpartition(":")[2]
                yield Server(address, "", {"Cookie": f"rl-ui-{port}={token}"}, process.pid)
            else:
                for line in process.stdout:
                    if line.startswith("The page is at"):
                        break
                address = line.rpartition(" ")[2].strip().removesuffix("/ui")
                if headers is None:
                    token = (state / "tools-token").read_text(encoding="utf-8").strip()
                    headers = {"Authorization": f"Bearer {token}"}
                yield Server(address, "/ui", headers, process.pid)
        finally:
            process.terminate()
            process.wait(60)


def row(what: str, said: str) -> None:
    print(f"  {what:<44} {said}", flush=True)


def pages(server: Server) -> None:
    with httpx.Client(base_url=server.address, headers=server.headers, timeout=60) as browser:
        row("memory before the first page", f"{resident_mib(server.pid):.0f} MiB")
        for path in ("/runs", "/runs?part=rows", "/runs?shown=1000"):
            seconds = []
            for _ in range(REPEATED):
                began = time.perf_counter()
                answer = browser.get(server.root + path)
                seconds.append(time.perf_counter() - began)
                assert answer.status_code == 200, answer.text
            size = f"{len(answer.content):,} B, {len(gzip.compress(answer.content)):,} B compressed"
            middle, last = 1000 * statistics.median(seconds), 1000 * max(seconds)
            row(path, f"{middle:.0f} ms (at most {last:.0f} ms), {size}")
        row("memory after the pages", f"{resident_mib(server.pid):.0f} MiB")


async def change(write: Write, runs: int) -> None:
    version = 1
    while True:
        version += 1
        for number in range(CHANGES_A_SECOND):
            await asyncio.to_thread(write, number * (runs // CHANGES_A_SECOND), version)
            await asyncio.sleep(1 / CHANGES_A_SECOND)


@dataclass(frozen=True)
class Load:
    """What is measured: `seconds` of each row of viewers."""

    runs: int
    viewers: int
    seconds: float


async def watched(server: Server, viewers: list[Headers], write: Write, load: Load, *, changing: bool) -> None:
    """`viewers`: the headers of each."""
    seen = Seen()
    tasks = [asyncio.create_task(look(server, headers, seen)) for headers in viewers]
    if changing:
        tasks.append(asyncio.create_task(change(write, load.runs)))
    await asyncio.sleep(3)
    forget_peak(server.pid)
    watch = Stopwatch(server.pid)
    await asyncio.sleep(load.seconds)
    used = watch.read()
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    what = f"{len(viewers)} viewers, {CHANGES_A_SECOND if changing else 'no'} runs change each second"
    row(what, f"{used.cpu / used.seconds:.0%} of a core, peak {peak_mib(server.pid):.0f} MiB")
    if seen.fetch_seconds:
        middle = 1000 * statistics.median(seen.fetch_seconds)
        row("", f"{seen.fetches / len(viewers) / used.seconds:.2f} fetches a second of each, {middle:.0f} ms")


def with_folder(load: Load) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        for number in range(load.runs):
            write_run(state, number)
        for command in (("ui", "--local", "--no-browser"), ("tools", "serve", "--local", "--ui", "--port", "0")):
            print(f"rlctl {' '.join(command)}, {load.runs:,} runs")
            with started(state, *command) as server:
                pages(server)
                for changing in (False, True):
                    viewers = [server.headers] * load.viewers
                    asyncio.run(watched(server, viewers, partial(write_run, state), load, changing=changing))


def with_rollouts(load: Load) -> None:
    for what, (groups, length) in STEPS.items():
        content = step_file(1, random.Random(1), groups, length)
        print(f"rlctl ui, a step of {what}, {len(content) / MEGABYTE:.1f} MB")
        with tempfile.TemporaryDirectory() as folder:
            (made_rollouts(Path(folder), "large") / "000001-1.jsonl.zst").write_bytes(content)
            with started(Path(folder), "ui", "--local", "--no-browser", "--port", "0") as server:
                for viewers in (1, load.viewers):
                    forget_peak(server.pid)
                    opened = asyncio.run(open_all(server, viewers, rollouts_path))
                    seconds = f"{opened.middle:.1f} s (at most {opened.longest:.1f} s)"
                    row(f"{viewers} at once", f"{seconds}, peak {peak_mib(server.pid):.0f} MiB")


def rollouts_path(viewer: int) -> str:
    return f"/runs/default/large/rollouts?step=1&sort={ORDERS[viewer % len(ORDERS)]}"


def with_api_server(load: Load) -> None:
    plane, folder = ControlPlane(), "/api/v1/namespaces/default/serviceaccounts"
    plane.start()
    try:
        kind = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:default"}
        binding = {"metadata": {"name": "viewers"}, "roleRef": kind, "subjects": [group]}
        plane.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        for number in range(load.runs):
            post_run(plane, number)
        viewers = []
        for number in range(load.viewers):
            plane.admin.post(folder, {"metadata": {"name": f"viewer-{number}"}})
            token = plane.admin.post(f"{folder}/viewer-{number}/token", {"spec": {}})["status"]["token"]
            viewers.append({"Authorization": f"Bearer {token}"})
        env_vars = {"KUBECONFIG": str(plane.certificate_kubeconfig())}
        print(f"rlctl tools serve --ui, {load.runs:,} runs of an API server, {load.viewers} tokens")
        with started(Path(), "tools", "serve", "--ui", "--port", "0", env_vars=env_vars, headers=viewers[0]) as server:
            pages(server)
            for changing in (False, True):
                watch = Stopwatch(plane.api_server_pid)
                asyncio.run(watched(server, viewers, partial(patch_run, plane), load, changing=changing))
                used = watch.read()
                row("", f"the API server: {used.cpu / used.seconds:.0%} of a core")
            tokens = [each["Authorization"].removeprefix("Bearer ") for each in viewers[:AGENTS]]
            print(f"  and {len(tokens)} agents")
            with agents(server, tokens):
                asyncio.run(watched(server, viewers, partial(patch_run, plane), load, changing=True))
    finally:
        plane.stop()


def post_run(plane: ControlPlane, number: int) -> None:
    path, run = RUNS.format(namespace="default"), made_run(number)
    metadata = {"name": run["metadata"]["name"]}
    spec = {"environment": "sort_digits", "runtime": "tiny", "suspend": True}
    plane.admin.post(path, {**run, "metadata": metadata, "spec": spec})
    patch_run(plane, number, 1)


def patch_run(plane: ControlPlane, number: int, version: int) -> None:
    status = made_run(number, version)["status"]
    path = f"{RUNS}/run-{number:04}/status".format(namespace="default")
    plane.admin.patch(path, {"status": {key: status[key] for key in ("phase", "message", "progress", "conditions")}})


def main() -> None:
    parser = argparse.ArgumentParser(description="What the page costs.")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("local", "cluster", "rollouts"))
    asked = parser.parse_args()
    load = Load(asked.runs, asked.viewers, asked.seconds)
    if asked.only in (None, "local"):
        with_folder(load)
    if asked.only in (None, "rollouts"):
        with_rollouts(load)
    if asked.only in (None, "cluster"):
        if find_program(API_SERVER) is None:
            print("no API server is installed: the page in front of one is not measured")
        else:
            with_api_server(load)


if __name__ == "__main__":
    main()
