"""Runs whose containers are scripts: the real supervisor and reconcile, without a model.

Frozen inputs are what runs: a started run whose ConfigMap holds a pod template continues with it.
"""

import json
import sys
from typing import Any

from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_contract.content_hash import sha256_of_texts
from rl_operator.local.state.state_store import StateStore
from rl_operator.status.observed.observation import format_time, parse_time

OPS = """
import http.server, json, os, signal, sys, threading, time
def result(outcome, **fields):
    path = os.environ["RL_RESULT_FILE"]
    document = {"schema": 1, "outcome": outcome, "attempt": int(os.environ["RL_ATTEMPT"]), "stepsTrained": 3,
                "totalSteps": 3, "statePath": "tinker://s/weights/3", "samplerPath": "tinker://s/sampler_weights/3"}
    file = os.open(path, os.O_WRONLY | os.O_CREAT)  # in place, as the trainer writes it: a full disk has this room
    text = json.dumps(document | fields).encode()
    os.pwrite(file, text, 0)
    os.ftruncate(file, len(text))
    os.close(file)
class Ops(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"phase": "training", "step": 3, "totalSteps": 3,
            "runUid": os.environ["RL_RUN_UID"], "attempt": int(os.environ["RL_ATTEMPT"])}).encode())
    def log_message(self, *_):
        pass
def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["RL_OPS_PORT"])), Ops)
    threading.Thread(target=server.serve_forever, daemon=True).start()
def on_sigterm(*_):
    if os.environ.get("RL_RESULT_FILE"):
        result("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_sigterm)
def wait():
    while True:
        time.sleep(0.1)  # a signal that comes just before a sleep does not end it: so none is long
"""

RUN_FILE = """
apiVersion: rl-operator.dev/v1alpha1
kind: RLTrainingRun
metadata: {name: run}
spec: {environment: sort_digits}
"""

NONE_APART = json.dumps({"pod": {"spec": {"containers": [{"env": []}], "volumes": []}}, "network": []})
"""The run's only environment is in its own pod."""

WORKS_ON = "serve(); print('working', flush=True); wait()"
SUCCEEDS = "serve(); print('trained', flush=True); result('succeeded')"
LEAVES = "serve(); print('left', flush=True)"
SILENT = "print('silent', flush=True); wait()"


def start_scripted(store: StateStore, name: str, *, trainer: str, environment: str = WORKS_ON, **spec: Any) -> None:
    """Put a started run into the store; the next look at it starts its supervisor."""
    run = store.create(run_manifest(name, spec={"runtime": "default", **spec}))
    uid = run["metadata"]["uid"]
    owner = {"kind": "RLTrainingRun", "name": name, "uid": uid, "controller": True}
    template = _template(name, uid, owner, trainer, environment)
    texts = {"config.yaml": "{}", "pod.json": json.dumps(template), "environments.json": NONE_APART}
    store.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "immutable": True,
            "metadata": {
                "name": f"{name}-config",
                "namespace": "default",
                "labels": {"rl-operator.dev/run": name},
                "ownerReferences": [owner],
            },
            "data": texts,
        }
    )
    started = {
        "observedGeneration": 1,
        "phase": "Starting",
        "startTime": format_time(parse_time(run["metadata"]["creationTimestamp"])),
        "attempt": 1,
        "podName": f"{name}-{uid[:5]}-1",
        "configMapName": f"{name}-config",
        "configHash": sha256_of_texts(texts),
    }
    store.update("RLTrainingRun", "default", name, lambda manifest: manifest.update(status=started))


def _template(name: str, uid: str, owner: dict[str, Any], trainer: str, environment: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-{uid[:5]}-",
            "namespace": "default",
            "labels": {"rl-operator.dev/run": name},
            "finalizers": ["rl-operator.dev/result"],
            "ownerReferences": [owner],
        },
        "spec": {
            "terminationGracePeriodSeconds": 60,  # a bound: on SIGTERM it ends at once
            "initContainers": [_container("api", 8003, uid, WORKS_ON) | {"restartPolicy": "Always"}],
            "containers": [
                _container("trainer", 8002, uid, trainer),
                _container("environment", 8004, uid, environment),
            ],
            "volumes": [],
        },
    }


def _container(name: str, port: int, uid: str, code: str) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 1, "failureThreshold": 30}
    result_file = [{"name": "RL_RESULT_FILE", "value": "/dev/termination-log"}] if name == "trainer" else []
    return {
        "name": name,
        "image": "none",
        "command": [sys.executable, "-c", OPS + code],
        "env": [{"name": "RL_RUN_UID", "value": uid}, *result_file],
        "readinessProbe": probe,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    } | ({"startupProbe": probe} if name == "api" else {})
