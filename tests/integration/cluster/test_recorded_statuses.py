"""Records a run in every situation as the API server stores it, for the tests of GitOps tools' rules.

tests/data/statuses/*.yaml are real objects. RL_UPDATE_GOLDEN=1 writes them again; without it this fails when what they
represent has changed: phase, conditions and reasons, and the set of fields.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.kubelet import API, ENVIRONMENT, TRAINER, End, result, running, waiting
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

RECORDED = Path("tests/data/statuses")
RUN = "sorting"
UNKNOWN = "no-such-environment"

Manifest = dict[str, Any]


def refused(runs: RunsNamespace) -> None:
    runs.apply(environment=UNKNOWN)
    runs.until_reason("Stalled", "UnknownEnvironment")


def draft(runs: RunsNamespace) -> None:
    runs.apply(suspend=True)
    runs.until_reason("Suspended", "Draft")


def starting(runs: RunsNamespace) -> str:
    runs.apply(backoffLimit=1)
    pod = runs.until_pod()
    runs.until_phase("Starting")
    return pod


def image_missing(runs: RunsNamespace) -> None:
    pod = starting(runs)
    runs.kubelet.bind(pod)
    missing = waiting("ImagePullBackOff", "no such image")
    states = {API: running(ready=True), TRAINER: missing, ENVIRONMENT: missing}
    runs.kubelet.write(pod, "Pending", states)
    runs.until_reason("Reconciling", "ImageNotPulled")


def training(runs: RunsNamespace) -> str:
    pod = starting(runs)
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running")
    return pod


def ending(runs: RunsNamespace) -> None:
    pod = training(runs)
    done = End(0, result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)).state
    states = {API: running(ready=True), TRAINER: {"state": done, "ready": False}, ENVIRONMENT: running(ready=True)}
    runs.kubelet.write(pod, "Running", states)
    runs.until_reason("Reconciling", "Ending")


def stopping(runs: RunsNamespace) -> str:
    pod = training(runs)
    runs.edit(suspend=True)
    runs.until_phase("Stopping")
    return pod


def stopped(runs: RunsNamespace) -> None:
    pod = stopping(runs)
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
    runs.until_phase("Stopped")


def catalog_unread(runs: RunsNamespace) -> None:
    name = f"unread-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name, image="registry.test/unread:1")
    runs.apply(runtime=name)
    runs.until_reason("Reconciling", "CatalogPending")


def queued(runs: RunsNamespace) -> None:
    name = f"narrow-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name, limits={"maxActiveRuns": 1})
    runs.apply("first", runtime=name)
    runs.until_pod(name="first")
    runs.apply(runtime=name)
    runs.until_reason("Reconciling", "Queued")


def succeeded(runs: RunsNamespace) -> None:
    pod = training(runs)
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)))
    runs.until_phase("Succeeded")


def failed(runs: RunsNamespace) -> None:
    pod = training(runs)
    runs.kubelet.end(pod, "Failed", trainer=End(2, "error: no such field"))
    runs.until_phase("Failed")


def deleting(runs: RunsNamespace) -> None:
    training(runs)
    runs.admin.delete(f"{RUNS.format(namespace=runs.namespace)}/{RUN}", {"propagationPolicy": "Foreground"})


LIVES: Mapping[str, Callable[[RunsNamespace], object]] = {
    "refused": refused,
    "draft": draft,
    "starting": starting,
    "image-missing": image_missing,
    "running": training,
    "ending": ending,
    "stopping": stopping,
    "stopped": stopped,
    "catalog-unread": catalog_unread,
    "queued": queued,
    "succeeded": succeeded,
    "failed": failed,
    "deleting": deleting,
}


@pytest.mark.parametrize("name", LIVES)
def test_recorded(runs: RunsNamespace, name: str) -> None:
    LIVES[name](runs)
    compare(name, runs.find() or {})


def test_a_run_that_was_not_reconciled(runs: RunsNamespace) -> None:
    body = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": RUN},
        "spec": {"environment": "sort_digits"},
    }
    compare("new", runs.admin.post(f"{RUNS.format(namespace=runs.namespace)}?dryRun=All", body))


def compare(name: str, run: Manifest) -> None:
    path = RECORDED / f"{name}.yaml"
    if os.environ.get("RL_UPDATE_GOLDEN"):
        run["metadata"].pop("managedFields", None)
        path.write_text(yaml.safe_dump(run, sort_keys=False, width=120, allow_unicode=True))
    recorded = yaml.safe_load(path.read_text())
    assert gist(recorded) == gist(run), "RL_UPDATE_GOLDEN=1 records it again"


def gist(run: Manifest) -> Manifest:
    """What GitOps rules read, without names and times."""
    status = run["status"]
    conditions = [
        (c["type"], c["status"], c["reason"], "observedGeneration" in c) for c in status.get("conditions", [])
    ]
    return {
        "phase": status.get("phase"),
        "conditions": conditions,
        "lag": run["metadata"]["generation"] - status.get("observedGeneration", -1),
        "deleted": "deletionTimestamp" in run["metadata"],
        "reason": status.get("failure", {}).get("reason"),
        "fields": sorted(status),
    }
