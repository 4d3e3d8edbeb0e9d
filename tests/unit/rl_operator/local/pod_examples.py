"""Pods whose containers are a few lines of Python, and a kubelet to run them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_contract.processes import OPS_PORTS
from rl_operator.local.pods.kubelet import KUBELET_FINALIZER, Kubelet
from rl_operator.local.state.locks import FileLock
from rl_operator.local.state.state_store import StateStore

DEADLINE_SECONDS = 60.0

SERVE_OPS = """
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["RL_OPS_PORT"])), Handler).serve_forever()
"""
"""Answers every GET with 200 on its ops port, ends in order on SIGTERM."""


def container(name: str, code: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "none", "command": [sys.executable, "-c", code], **fields}


def probe(name: str, **fields: Any) -> dict[str, Any]:
    return {"httpGet": {"path": "/healthz", "port": OPS_PORTS[name]}, "periodSeconds": 1, "timeoutSeconds": 1, **fields}


def sidecar(code: str = SERVE_OPS, **fields: Any) -> dict[str, Any]:
    return container(
        "api", code, restartPolicy="Always", **({"startupProbe": probe("api", failureThreshold=20)} | fields)
    )


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "run-00000-1",
            "namespace": "default",
            "labels": {"rl-operator.dev/run": "run"},
            "finalizers": [KUBELET_FINALIZER],
        },
        "spec": {
            "initContainers": [c for c in containers if "restartPolicy" in c],
            "containers": [c for c in containers if "restartPolicy" not in c],
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }


class Node:
    """A kubelet over a store, and what tests ask of it."""

    def __init__(self, store: StateStore, kubelet: Kubelet, changed: asyncio.Event) -> None:
        self.store = store
        self.kubelet = kubelet
        self._changed = changed

    def create(self, manifest: dict[str, Any]) -> Any:
        created: Any = self.store.create(manifest)
        self.kubelet.sync((created,))
        return created

    async def run(self, *containers: dict[str, Any], **spec: Any) -> Any:
        """A pod of these, at its end."""
        self.create(pod(*containers, **spec))
        return await self.end()

    def delete(self) -> None:
        """As a user does; the kubelet sees it."""
        before = self.read()
        self.store.delete("Pod", "default", "run-00000-1")
        self.kubelet.sync((self.read() or before,))

    def log(self, name: str, pod_name: str = "run-00000-1") -> str:
        path = self.store.layout.pod("default", pod_name).log(name)
        return path.read_text() if path.exists() else ""

    async def until_log(self, name: str, text: str) -> None:
        await self.until(lambda _: text in self.log(name), f"{text!r} in the log of {name}")

    def read(self) -> Any:
        return self.store.get("Pod", "default", "run-00000-1")

    async def until(self, holds: Callable[[dict[str, Any]], bool], awaited: str) -> Any:
        """The pod, once a condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (seen := self.read()) is None or "status" not in seen or not holds(seen):
            self._changed.clear()
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"waited {DEADLINE_SECONDS} s for {awaited}; the pod is {seen}"
            try:
                await asyncio.wait_for(self._changed.wait(), min(remaining, 0.1))
            except TimeoutError:
                continue
        return seen

    async def end(self) -> Any:
        return await self.until(lambda p: p["status"]["phase"] in ("Succeeded", "Failed"), "the pod's end")


def state_of(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The container's status."""
    statuses = manifest["status"]["initContainerStatuses"] + manifest["status"]["containerStatuses"]
    return next(status for status in statuses if status["name"] == name)


def start_holder(path: Path, code: str = "import time; time.sleep(60)") -> subprocess.Popen[bytes]:
    """A process that holds the lock like a container: by an inherited descriptor."""
    lock = FileLock(path)
    assert lock.take()
    holder = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, pass_fds=(lock.descriptor,))
    lock.give_back()
    return holder
