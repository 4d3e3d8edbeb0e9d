"""What a user of one namespace can write, and what must not come of it for everybody else."""

import json

from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.runs import RunsNamespace

DEPTH = 9_900
"""The API server takes 10,000."""


def test_deep_settings_stop_nobody_else(runs: RunsNamespace, operator_process: OperatorProcess) -> None:
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"deep": "DEEP"}}
    run = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": "deep"}}
    text = json.dumps({**run, "spec": spec}).replace('"DEEP"', "[" * DEPTH + "]" * DEPTH)
    runs.admin.post_text(RUNS.format(namespace=runs.namespace), text)
    runs.apply()
    runs.until_pod()
    operator_process.kill()
    operator_process.start()
    runs.apply("again")
    runs.until_pod(name="again")


def test_a_large_pod_stops_nobody_else(runs: RunsNamespace) -> None:
    """Watches tell of an object in one line."""
    runs.apply()
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{runs.until_pod()}"
    runs.admin.patch(path, {"metadata": {"annotations": {f"note-{n}": "x" * 50_000 for n in range(5)}}})
    runs.apply("again")
    pod = runs.until_pod(name="again")
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running", "again")
