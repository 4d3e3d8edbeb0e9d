"""What may be edited when: drafts and refused runs are checked again, running ones do not change."""

from collections.abc import Callable
from typing import Any

from tests.integration.cluster.admin import RUNTIMES
from tests.integration.cluster.kubelet import End
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime


def until(runs: RunsNamespace, what: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The status of `sorting`, once a condition holds."""
    return wait_for(what, lambda: (status := runs.status()) and holds(status) and status)


def refused(code: str) -> Callable[[dict[str, Any]], object]:
    return lambda status: [r["code"] for r in status.get("refusals", ())] == [code]


def own_runtime(runs: RunsNamespace, **spec: Any) -> str:
    name = f"own-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=name, **spec)
    return name


def edit_runtime(runs: RunsNamespace, name: str, **spec: Any) -> None:
    runs.admin.patch(f"{RUNTIMES}/{name}", {"spec": spec})


def test_a_draft_shows_what_it_would_run_and_runs_it(runs: RunsNamespace) -> None:
    runs.apply(suspend=True)
    draft = until(runs, "the draft is checked", lambda s: s.get("configHash"))
    assert (draft["phase"], "startTime" in draft, "configMapName" in draft) == ("Draft", False, False)
    runs.edit(config={"total_steps": TOTAL_STEPS, "group_sise": 8})
    until(runs, "the edit is checked", refused("UnknownField"))
    runs.edit(config={"group_sise": None, "group_size": 4})
    edited = until(runs, "the fixed draft is checked", lambda s: s.get("configHash"))
    assert edited["configHash"] != draft["configHash"]
    assert runs.empty()
    runs.edit(suspend=False)
    runs.succeed(runs.until_pod())
    assert runs.status()["configMapName"] == f"sorting-{edited['configHash'][:8]}"


def test_a_draft_follows_its_runtime(runs: RunsNamespace) -> None:
    runtime = own_runtime(runs)
    runs.apply(runtime=runtime, suspend=True, trainer={"lora_rank": 8})
    draft = until(runs, "the draft is checked", lambda s: s.get("configHash"))
    edit_runtime(runs, runtime, terminationGracePeriodSeconds=31)
    until(runs, "the edited runtime is seen", lambda s: s.get("configHash") not in (None, draft["configHash"]))
    edit_runtime(runs, runtime, locked={"trainer": {"lora_rank": 16}})
    assert "configHash" not in until(runs, "the lock is seen", refused("LockedField"))
    runs.admin.delete(f"{RUNTIMES}/{runtime}")
    until(runs, "the loss is seen", refused("RuntimeNotFound"))
    install_runtime(runs.admin, "tiny", name=runtime)
    until(runs, "the draft is as it was", lambda s: s.get("configHash") == draft["configHash"])
    stays("nothing is created", runs.empty)


def test_a_running_run_does_not_change(runs: RunsNamespace) -> None:
    """Its runtime is edited and then deleted: attempts 2 and 3 are the same as attempt 1."""
    runtime = own_runtime(runs)
    runs.apply(runtime=runtime, config={"total_steps": TOTAL_STEPS, "group_size": 8})
    pods = [runs.until_pod()]
    runs.kubelet.start(pods[0])
    runs.kubelet.work(pods[0])
    runs.until_phase("Running")
    edit_runtime(runs, runtime, image="tinker-atropos:next", locked={"env": {"group_size": 4}})
    for change in (lambda: None, lambda: runs.admin.delete(f"{RUNTIMES}/{runtime}")):
        change()
        runs.kubelet.end(pods[-1], "Failed", trainer=End(1, "bug"))
        pods.append(runs.until_pod(attempt=len(pods) + 1))
        runs.kubelet.start(pods[-1])
    specs = [_as_rendered(runs.kubelet.pod(pod) or {}) for pod in pods]
    assert specs[0] == specs[1] == specs[2]
    assert specs[0]["containers"][0]["image"] == "tinker-atropos:dev"
    assert runs.status().get("refusals", []) == []


def _as_rendered(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec without what each attempt has of its own."""
    spec: dict[str, Any] = pod["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["env"] = [each for each in container["env"] if each["name"] not in ("RL_ATTEMPT", "RL_OPS_TOKEN")]
    return spec


def test_labels_decide_which_namespaces_may_use_a_runtime(runs: RunsNamespace) -> None:
    team = {"key": "team", "operator": "In", "values": ["ml", "speech"]}
    runtime = own_runtime(runs, namespaceSelector={"matchExpressions": [team]})
    namespace = f"/api/v1/namespaces/{runs.namespace}"
    runs.apply(runtime=runtime)
    refusal = until(runs, "it is refused", refused("NamespaceNotAllowed"))["refusals"][0]
    assert (refusal["field"], refusal["allowed"]["matchExpressions"]) == ("spec.runtime", [team])
    runs.admin.patch(namespace, {"metadata": {"labels": {"team": "ml"}}})
    pod = runs.until_pod()
    runs.admin.patch(namespace, {"metadata": {"labels": {"team": None}}})
    runs.succeed(pod)


def test_settings_edited_after_the_start_are_named_and_change_nothing(runs: RunsNamespace) -> None:
    """Here no admission policy is installed, which would refuse the edit."""
    runs.train()
    before = runs.status()
    runs.edit(config={"total_steps": TOTAL_STEPS + 1})
    status = until(runs, "the edit is named", refused("FrozenField"))
    assert status["refusals"] == [
        {
            "code": "FrozenField",
            "field": "spec.config",
            "hint": "it is frozen since the run started: make a new run for other settings",
        }
    ]
    assert (status["phase"], status["configHash"]) == ("Running", before["configHash"])
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Accepted": "True", "Ready": "True"}
    runs.edit(config={"total_steps": TOTAL_STEPS})
    until(runs, "the edit is taken back", lambda s: not s.get("refusals"))
