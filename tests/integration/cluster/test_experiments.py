"""Sweeps and comparisons against a real API server: labels, drafts, and the ConfigMap that keeps the table."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.control_plane import GUEST, GUEST_TOKEN, RIGHTS, ControlPlane
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.rlctl_calls import Call, rlctl_in
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

NAMES = ("trial-lr1e-4", "trial-lr1e-3")


@pytest.fixture
def reader(control_plane: ControlPlane, runs: RunsNamespace) -> Iterator[Call]:
    """A user who may read all of the namespace, and write nothing."""
    rules = [
        {"apiGroups": ["rl-operator.dev"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "test-reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": GUEST}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "test-reader"},
    }
    role = {"metadata": {"name": "test-reader"}, "rules": rules}
    control_plane.admin.post(RIGHTS["Role"].format(namespace=runs.namespace), role)
    control_plane.admin.post(RIGHTS["RoleBinding"].format(namespace=runs.namespace), binding)
    yield rlctl_in(control_plane, runs.namespace, GUEST_TOKEN)
    for kind in ("RoleBinding", "Role"):
        control_plane.admin.delete(f"{RIGHTS[kind].format(namespace=runs.namespace)}/test-reader")


@pytest.fixture
def sweep(rlctl: Call, tmp_path: Path) -> Call:
    """`rlctl sweep` of two learning rates, with more arguments."""
    path = tmp_path / "run.json"
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS}}
    kind = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun"}
    path.write_text(json.dumps({**kind, "metadata": {"name": "trial"}, "spec": spec}))
    return lambda *more: rlctl("sweep", str(path), "--set", "trainer.learning_rate=1e-4,1e-3", *more)


def record_of(runs: RunsNamespace) -> dict[str, Any] | None:
    found: dict[str, Any] | None = runs.admin.find(f"/api/v1/namespaces/{runs.namespace}/configmaps/experiment-trial")
    return found


def test_a_sweep_from_its_start_to_a_table_that_outlives_its_runs(
    rlctl: Call, reader: Call, sweep: Call, runs: RunsNamespace
) -> None:
    started = sweep("--start")
    assert started.returncode == 0, started
    listed = json.loads(rlctl("list", "--experiment", "trial", "-o", "json").stdout)["items"]
    assert sorted(run["metadata"]["name"] for run in listed) == sorted(NAMES)
    again = sweep("--start")
    assert (again.returncode, "is there already" in again.stderr) == (2, True), again
    for name in NAMES:
        succeed(runs, name)
    read = wait_for("the reader's rights hold", lambda: _ok(reader("compare", "--experiment", "trial")))
    assert "note: the table is not kept, so it ends with its runs" in read.stderr
    ranked = rlctl("compare", "--experiment", "trial", "-o", "json")
    assert ranked.returncode == 0, ranked
    assert {run["phase"] for run in json.loads(ranked.stdout)["runs"]} == {"Succeeded"}
    writers = {each["manager"] for each in (record_of(runs) or {})["metadata"]["managedFields"]}
    assert writers == {"rlctl"}
    side_by_side = rlctl("compare", *NAMES)
    assert side_by_side.returncode == 0, side_by_side
    assert ["trainer.learning_rate", "0.0001", "0.001"] in [line.split() for line in side_by_side.stdout.splitlines()]
    for name in NAMES:
        assert rlctl("delete", name).returncode == 0
    gone = json.loads(rlctl("compare", "--experiment", "trial", "-o", "json").stdout)["runs"]
    assert {run["name"]: (run["gone"], run["swept"]) for run in gone} == {
        NAMES[0]: (True, {"trainer.learning_rate": 1e-4}),
        NAMES[1]: (True, {"trainer.learning_rate": 1e-3}),
    }


def succeed(runs: RunsNamespace, name: str) -> None:
    """Play the life of one run among others."""
    pod = runs.until_pod(name=name)
    runs.kubelet.start(pod)
    runs.finish(pod, name)


def _ok(ended: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str] | None:
    return ended if ended.returncode == 0 else None


def test_a_refused_value_starts_nothing(rlctl: Call, sweep: Call, runs: RunsNamespace) -> None:
    refused = sweep("--set", "trainer.lora_rank=8,100000", "--start")
    assert refused.returncode == 2, refused
    assert "spec.trainer.lora_rank is 100000: it must be at most" in refused.stderr
    assert rlctl("list", "--experiment", "trial").stdout.startswith("No runs")
    assert record_of(runs) is None


def test_a_config_map_of_somebody_else_is_left_alone(sweep: Call, runs: RunsNamespace) -> None:
    path = f"/api/v1/namespaces/{runs.namespace}/configmaps"
    runs.admin.post(path, {"metadata": {"name": "experiment-trial"}, "data": {"mine": "yes"}})
    refused = sweep("--start")
    assert (refused.returncode, "is not the table of an experiment" in refused.stderr) == (2, True), refused
    assert (record_of(runs) or {})["data"] == {"mine": "yes"}
    assert runs.find(NAMES[0]) is None
