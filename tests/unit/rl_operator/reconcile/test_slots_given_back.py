"""A tenant's run that gets no pod holds up nobody at the runtime that it shares, and never exceeds its limit later."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.simulated_cluster import (
    GRACE,
    KUEUE_GATE,
    NAMESPACE,
    PACE,
    SimulatedCluster,
    gates_of,
    path_of,
)
from tests.unit.rl_operator.status.builders import ready, result, terminated

from rl_operator.api.names import COMPONENT_LABEL, RUN_LABEL, RUNTIME_PLURAL, SLOT_GATE, TRAINING_COMPONENT
from rl_operator.cluster.api_server.resources import CONFIG_MAPS, PODS, RUNS
from rl_operator.reconcile.reconcile import TROUBLE_SECONDS
from rl_operator.status.observed.observation import format_time

QUOTA = 90
TRY_SECONDS = TROUBLE_SECONDS


@pytest.fixture
def crowded() -> Iterator[SimulatedCluster]:
    """One slot, held by a run whose namespace has no room for its pod, and another run that waits for it."""
    cluster = SimulatedCluster(limit=1)
    cluster.api.over_quota.add("blocked")
    cluster.apply("blocked")
    settle(cluster)
    cluster.apply("waiting")
    settle(cluster)
    yield cluster
    cluster.close()


def settle(cluster: SimulatedCluster, seconds: float = 0) -> None:
    """Let time go on, and everything that is due happen."""
    end = cluster.api.now + timedelta(seconds=seconds)
    for _ in range(500):
        cluster.deliver_all()
        due = min(cluster.due.values(), default=None)
        if due is None or due > end:
            cluster.api.now = end
            return
        cluster.api.now = max(cluster.api.now, due)
        cluster.work()
    raise AssertionError(f"no rest: {cluster.due}")


def status(cluster: SimulatedCluster, name: str) -> dict[str, Any]:
    run = cluster.run(name)
    assert run
    return dict(run["status"])


def pods_of(cluster: SimulatedCluster) -> list[str]:
    return [pod["metadata"]["labels"][RUN_LABEL] for pod in cluster.pods()]


def pods_of_run(cluster: SimulatedCluster, name: str) -> list[dict[str, Any]]:
    return [pod for pod in cluster.pods() if pod["metadata"]["labels"][RUN_LABEL] == name]


def admit(cluster: SimulatedCluster) -> None:
    [pod] = pods_of_run(cluster, "gated")
    cluster.admit(pod)
    settle(cluster)


def may_start(cluster: SimulatedCluster) -> list[str]:
    return [pod["metadata"]["labels"][RUN_LABEL] for pod in cluster.pods() if not gates_of(pod)]


def end(cluster: SimulatedCluster, name: str) -> None:
    [pod] = (pod for pod in cluster.pods() if pod["metadata"]["labels"][RUN_LABEL] == name)
    at = format_time(cluster.api.now)
    containers = {"api": terminated(0, at=at), "trainer": terminated(0, result(), at=at), "environment": terminated(0)}
    cluster.play(pod, "Succeeded", containers)
    settle(cluster)


def test_its_slot_goes_to_the_next_run_after_a_minute(crowded: SimulatedCluster) -> None:
    settle(crowded, 50)
    assert (pods_of(crowded), status(crowded, "waiting")["queue"]["place"]) == ([], 1)
    settle(crowded, 40)
    assert pods_of(crowded) == ["waiting"]
    blocked = status(crowded, "blocked")
    assert (blocked["phase"], blocked["attempt"], blocked["queue"]["active"]) == ("Pending", 1, 1)


def test_once_its_pod_can_be_created_it_waits_in_line(crowded: SimulatedCluster) -> None:
    settle(crowded, QUOTA)
    crowded.api.over_quota.clear()
    settle(crowded, 10 * TRY_SECONDS)
    assert may_start(crowded) == ["waiting"], "the limit holds"
    crowded.apply("younger")
    settle(crowded)
    assert status(crowded, "blocked")["queue"] == {"place": 1, "active": 1, "limit": 1}
    end(crowded, "waiting")
    assert may_start(crowded) == ["blocked", "waiting"]
    assert "queue" not in status(crowded, "blocked")
    settle(crowded, PACE.progress_seconds)
    assert status(crowded, "younger")["queue"]["place"] == 1


def test_without_others_it_starts_by_itself(crowded: SimulatedCluster) -> None:
    crowded.delete_run("waiting")
    settle(crowded, QUOTA)
    crowded.api.over_quota.clear()
    settle(crowded, TRY_SECONDS + 1)
    assert (pods_of(crowded), status(crowded, "blocked")["attempt"]) == (["blocked"], 1)


def test_a_restarted_operator_knows_who_holds_the_slot(crowded: SimulatedCluster) -> None:
    settle(crowded, QUOTA)
    crowded.api.over_quota.clear()
    crowded.start_operator()
    settle(crowded, TRY_SECONDS)
    assert may_start(crowded) == ["waiting"]


def test_a_further_attempt_gives_the_slot_back_too(crowded: SimulatedCluster) -> None:
    settle(crowded, QUOTA)
    [pod] = crowded.pods()
    at = format_time(crowded.api.now)
    crowded.play(pod, "Failed", {"api": ready(), "trainer": terminated(1, at=at), "environment": terminated(0)})
    crowded.api.over_quota = {"waiting"}
    settle(crowded)
    settle(crowded, QUOTA)
    assert status(crowded, "waiting")["attempt"] == 2, "the first attempt's pod ends no other attempt"
    assert status(crowded, "waiting")["failedAttempts"] == 1
    assert "gave its slot" in status(crowded, "waiting")["message"]
    assert may_start(crowded) == ["blocked", "waiting"], "of the first attempt"


def test_tries_cost_few_writes(crowded: SimulatedCluster) -> None:
    crowded.delete_run("waiting")
    settle(crowded, QUOTA)
    before = crowded.api.writes
    settle(crowded, 10 * TRY_SECONDS)
    assert crowded.api.writes - before <= 10 + 1, "the refused pod"


@pytest.fixture
def gated() -> Iterator[SimulatedCluster]:
    """One slot, held by a run that Kueue does not admit, and another run that waits for it."""
    cluster = SimulatedCluster(limit=1)
    cluster.apply("gated", queued=True)
    settle(cluster)
    cluster.apply("waiting")
    settle(cluster)
    yield cluster
    cluster.close()


def test_a_run_that_is_not_admitted_gives_its_slot_back_and_keeps_its_pod(gated: SimulatedCluster) -> None:
    settle(gated, 50)
    assert (pods_of(gated), status(gated, "waiting")["queue"]["place"]) == (["gated"], 1)
    settle(gated, 20)
    assert pods_of(gated) == ["gated", "waiting"]
    found = status(gated, "gated")
    assert (found["phase"], found["attempt"], found["queue"]["gaveBack"][:16]) == ("Starting", 1, "2026-05-01T12:01")


@pytest.mark.parametrize("restarted", [False, True])
def test_admitted_later_it_waits_for_a_slot_in_line(gated: SimulatedCluster, *, restarted: bool) -> None:
    settle(gated, 70)
    gated.apply("younger")
    settle(gated)
    [pod] = pods_of_run(gated, "gated")
    admit(gated)
    settle(gated, 300)
    if restarted:
        gated.start_operator()
        settle(gated)
    assert gates_of(gated.api.live(path_of(pod))) == (SLOT_GATE,), "the limit holds"
    found = status(gated, "gated")
    assert (found["queue"]["place"], status(gated, "younger")["queue"]["place"]) == (1, 2)
    assert "1 of 1 runs active" in found["message"]
    end(gated, "waiting")
    assert gates_of(gated.api.live(path_of(pod))) == ()
    assert "queue" not in status(gated, "gated")
    settle(gated, 60)
    assert status(gated, "younger")["queue"]["place"] == 1


def test_admitted_in_time_it_starts_at_once(gated: SimulatedCluster) -> None:
    [pod] = gated.pods()
    assert gates_of(pod) == (SLOT_GATE, KUEUE_GATE)
    gated.admit(pod)
    settle(gated)
    assert gates_of(gated.api.live(path_of(pod))) == ()
    settle(gated, 200)
    assert pods_of(gated) == ["gated"]


def test_its_start_deadline_begins_when_it_may_start(gated: SimulatedCluster) -> None:
    gated.edit_run("gated", startDeadlineSeconds=100)
    settle(gated, 70)
    admit(gated)
    settle(gated, 300)
    end(gated, "waiting")
    settle(gated, 95)
    assert (status(gated, "gated")["phase"], status(gated, "gated")["attempt"]) == ("Starting", 1)
    settle(gated, 10)
    assert status(gated, "gated")["failure"]["reason"] == "StartDeadlineExceeded"


def test_ending_it_takes_no_slot_again(gated: SimulatedCluster) -> None:
    gated.edit_run("gated", activeDeadlineSeconds=100)
    settle(gated, 200)
    assert status(gated, "gated")["failure"]["reason"] == "ActiveDeadlineExceeded"
    of_run = [run["status"] for run in gated.api.history if run["metadata"]["name"] == "gated"]
    [ending] = (each for each in of_run if each.get("phase") == "Stopping")
    assert ending["queue"]["active"] == 1


def test_evicted_while_it_waits_for_a_slot_its_pod_is_made_again_at_once(gated: SimulatedCluster) -> None:
    settle(gated, 70)
    admit(gated)
    [pod] = pods_of_run(gated, "gated")
    gated.api.remove(path_of(pod))
    settle(gated)
    [again] = pods_of_run(gated, "gated")
    assert (again["metadata"]["uid"] != pod["metadata"]["uid"], gates_of(again)) == (True, (SLOT_GATE, KUEUE_GATE))
    assert "gaveBack" in status(gated, "gated")["queue"]
    admit(gated)
    end(gated, "waiting")
    assert may_start(gated) == ["gated", "waiting"]
    assert (status(gated, "gated")["attempt"], status(gated, "gated").get("attempts")) == (1, None)


def waits_for_a_slot(gated: SimulatedCluster) -> dict[str, Any]:
    """The pod of `gated`: admitted since its run gave the slot back, which `waiting` has."""
    settle(gated, 70)
    admit(gated)
    [pod] = pods_of_run(gated, "gated")
    return pod


def exchange_config(cluster: SimulatedCluster, name: str) -> None:
    path = CONFIG_MAPS.path(NAMESPACE, status(cluster, name)["configMapName"])
    stored = cluster.api.objects[path]
    cluster.api.remove(path)
    changed = {key: f"{text}\n# exchanged" for key, text in stored["data"].items()}
    cluster.api.put_new(CONFIG_MAPS.path(NAMESPACE), {**stored, "metadata": {**stored["metadata"]}, "data": changed})
    cluster.edit_run(name, priority=1)
    settle(cluster, 5)


def test_with_an_exchanged_config_it_is_not_let_start_and_no_deadline_runs(gated: SimulatedCluster) -> None:
    gated.edit_run("gated", startDeadlineSeconds=100)
    pod = waits_for_a_slot(gated)
    settle(gated, 200)
    exchange_config(gated, "gated")
    end(gated, "waiting")
    assert gates_of(gated.api.live(path_of(pod))) == (SLOT_GATE,)
    found = status(gated, "gated")
    assert (found["phase"], "gaveBack" in found["queue"]) == ("Starting", True)
    assert "Nothing is made from it" in found["message"]


@pytest.mark.parametrize("limit", [1, None])
def test_a_wait_for_admission_that_ends_with_a_refusal_is_no_late_start(limit: int | None) -> None:
    cluster = SimulatedCluster(limit)
    cluster.apply("gated", queued=True, startDeadlineSeconds=100)
    settle(cluster, 300)
    cluster.api.over_quota = {"gated"}
    [pod] = cluster.pods()
    cluster.api.remove(path_of(pod))
    settle(cluster, 90)
    assert "Failed" not in status(cluster, "gated")["phase"]
    settle(cluster, 20)
    assert status(cluster, "gated")["failure"]["reason"] == "StartDeadlineExceeded"
    cluster.close()


@pytest.mark.parametrize("in_line", [True, False])
def test_a_pod_that_cannot_go_keeps_no_slot(gated: SimulatedCluster, *, in_line: bool) -> None:
    """Kueue's finalizer is on it, say, and Kueue is away."""
    if in_line:
        waits_for_a_slot(gated)
        gated.apply("younger")
        settle(gated)
    else:
        admit(gated)
    [pod] = pods_of_run(gated, "gated")
    gated.api.edit(path_of(pod), lambda found: found["metadata"]["finalizers"].append("kueue.x-k8s.io/managed"))
    gated.api.remove(path_of(pod))
    settle(gated, 70)
    if in_line:
        end(gated, "waiting")
    assert ("younger" if in_line else "waiting") in may_start(gated)


def set_runtime(cluster: SimulatedCluster, *, limit: int | None, gone: bool = False) -> None:
    path = f"/apis/rl-operator.dev/v1alpha1/{RUNTIME_PLURAL}/tiny"
    runtime = cluster.api.edit(path, lambda found: found["spec"]["limits"].update(maxActiveRuns=limit))
    cluster.caches.runtimes.apply({"type": "DELETED" if gone else "MODIFIED", "object": runtime})
    for run in cluster.caches.runs:
        cluster.look_at(run.key)
    settle(cluster, 5)


def test_a_runtime_that_is_gone_for_a_moment_lets_nobody_through(gated: SimulatedCluster) -> None:
    """`kubectl replace --force`."""
    pod = waits_for_a_slot(gated)
    set_runtime(gated, limit=1, gone=True)
    set_runtime(gated, limit=1)
    assert gates_of(gated.api.live(path_of(pod))) == (SLOT_GATE,)


def test_slots_that_are_added_later_are_kept_by_no_gated_pod() -> None:
    cluster = SimulatedCluster()
    cluster.apply("gated", queued=True)
    settle(cluster)
    set_runtime(cluster, limit=1)
    cluster.apply("waiting")
    settle(cluster, 130)
    assert may_start(cluster) == ["waiting"]
    [pod] = pods_of_run(cluster, "gated")
    assert gates_of(pod) == (SLOT_GATE, KUEUE_GATE), "it was made again"
    cluster.close()


def test_the_gate_of_an_unknown_controller_keeps_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that takes ours away, even."""
    cluster = SimulatedCluster(limit=1)
    create = cluster.api.put_new

    def gate(path: str, body: Any) -> dict[str, Any]:
        stranger = body["kind"] == "Pod" and body["metadata"]["labels"][RUN_LABEL] == "gated"
        return create(
            path, {**body, "spec": {**body["spec"], "schedulingGates": [{"name": "x"}]}} if stranger else body
        )

    monkeypatch.setattr(cluster.api, "put_new", gate)
    cluster.apply("gated")
    settle(cluster)
    cluster.apply("waiting")
    settle(cluster, 130)
    assert may_start(cluster) == ["waiting"]
    cluster.close()


@pytest.fixture
def occupied() -> Iterator[SimulatedCluster]:
    """One slot, held by a run that trains, and another run that waits for it."""
    cluster = SimulatedCluster(limit=1)
    cluster.apply("first")
    settle(cluster)
    [pod] = cluster.pods()
    cluster.play(pod, "Running", {"api": ready(), "trainer": ready(), "environment": ready()})
    cluster.apply("second")
    settle(cluster)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_deleted_run_keeps_its_slot_until_its_pod_is_gone(occupied: SimulatedCluster, *, orphaned: bool) -> None:
    [pod] = occupied.pods()
    if orphaned:
        occupied.api.edit(path_of(pod), lambda document: document["metadata"].pop("ownerReferences"))
    occupied.delete_run("first")
    settle(occupied, 5)
    [left] = occupied.pods()
    assert ("deletionTimestamp" in left["metadata"], left["metadata"]["finalizers"]) == (True, [])
    occupied.apply("first")
    occupied.start_operator()
    settle(occupied, 10)
    assert pods_of(occupied) == ["first"], "its name does not make it another run's"
    assert status(occupied, "second")["queue"]["active"] == 1
    occupied.finish(left)
    settle(occupied)
    assert pods_of(occupied) == ["second"]


def test_a_run_that_is_being_deleted_holds_a_slot_only_for_its_pod(occupied: SimulatedCluster) -> None:
    """Whatever else keeps the run."""
    occupied.api.edit(RUNS.path(NAMESPACE, "first"), lambda run: run["metadata"].update(finalizers=["a.tenants/own"]))
    occupied.delete_run("first")
    settle(occupied)
    [left] = occupied.pods()
    occupied.finish(left)
    settle(occupied)
    assert pods_of(occupied) == ["second"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_on_a_lost_node_keeps_no_slot(occupied: SimulatedCluster, *, restarted: bool) -> None:
    occupied.delete_run("first")
    settle(occupied, 2 * GRACE.total_seconds() - 5)
    assert pods_of(occupied) == ["first"]
    if restarted:
        occupied.start_operator()
    settle(occupied, 10)
    assert pods_of(occupied) == ["first", "second"]


def test_a_pod_that_only_carries_a_runs_name_is_left_alone(occupied: SimulatedCluster) -> None:
    metadata = {"name": "strangers", "namespace": NAMESPACE}
    labels = {RUN_LABEL: "first", COMPONENT_LABEL: TRAINING_COMPONENT}
    occupied.api.put_new(PODS.path(NAMESPACE), {"kind": "Pod", "metadata": {**metadata, "labels": labels}, "spec": {}})
    settle(occupied)
    assert "strangers" in [pod["metadata"]["name"] for pod in occupied.pods()]
