"""A tenant's run that gets no pod holds up nobody at the runtime that it shares, and never exceeds its limit later."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.simulated_cluster import SimulatedCluster
from tests.unit.rl_operator.status.builders import ready, result, terminated

from rl_operator.api.names import RUN_LABEL
from rl_operator.status.attempt.run_admission import RETRY_AFTER
from rl_operator.status.observed.observation import format_time

QUOTA = 90
RETRY_SECONDS = RETRY_AFTER.total_seconds()


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
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
        due = min(cluster.due.values(), default=end)
        if due > end:
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


def end(cluster: SimulatedCluster, name: str) -> None:
    [pod] = (pod for pod in cluster.pods() if pod["metadata"]["labels"][RUN_LABEL] == name)
    at = format_time(cluster.api.now)
    containers = {"api": terminated(0, at=at), "trainer": terminated(0, result(), at=at), "environment": terminated(0)}
    cluster.play(pod, "Succeeded", containers)
    settle(cluster)


def test_its_slot_goes_to_the_next_run_after_a_minute(cluster: SimulatedCluster) -> None:
    settle(cluster, 50)
    assert (pods_of(cluster), status(cluster, "waiting")["queue"]["place"]) == ([], 1)
    settle(cluster, 40)
    assert pods_of(cluster) == ["waiting"]
    blocked = status(cluster, "blocked")
    assert (blocked["phase"], blocked["attempt"], blocked["queue"]["active"]) == ("Pending", 1, 1)


def test_it_takes_the_next_free_slot_once_its_pod_can_be_created(cluster: SimulatedCluster) -> None:
    settle(cluster, QUOTA)
    cluster.api.over_quota.clear()
    settle(cluster, 10 * RETRY_SECONDS)
    assert pods_of(cluster) == ["waiting"], "the limit holds"
    cluster.apply("younger")
    settle(cluster)
    end(cluster, "waiting")
    assert pods_of(cluster) == ["blocked", "waiting"]
    assert "queue" not in status(cluster, "blocked")
    assert status(cluster, "younger")["queue"]["place"] == 1


def test_without_others_it_starts_by_itself(cluster: SimulatedCluster) -> None:
    cluster.delete_run("waiting")
    settle(cluster, QUOTA)
    cluster.api.over_quota.clear()
    settle(cluster, RETRY_SECONDS + 1)
    assert (pods_of(cluster), status(cluster, "blocked")["attempt"]) == (["blocked"], 1)


def test_a_restarted_operator_knows_who_holds_the_slot(cluster: SimulatedCluster) -> None:
    settle(cluster, QUOTA)
    cluster.api.over_quota.clear()
    cluster.start_operator()
    settle(cluster, RETRY_SECONDS)
    assert pods_of(cluster) == ["waiting"]


def test_a_further_attempt_gives_the_slot_back_too(cluster: SimulatedCluster) -> None:
    settle(cluster, QUOTA)
    [pod] = cluster.pods()
    at = format_time(cluster.api.now)
    cluster.play(pod, "Failed", {"api": ready(), "trainer": terminated(1, at=at), "environment": terminated(0)})
    cluster.api.over_quota = {"waiting"}
    settle(cluster)
    settle(cluster, QUOTA)
    assert status(cluster, "waiting")["attempt"] == 2, "the first attempt's pod ends no other attempt"
    assert status(cluster, "waiting")["failedAttempts"] == 1
    assert "gave its slot" in status(cluster, "waiting")["message"]
    assert pods_of(cluster) == ["blocked", "waiting"], "of the first attempt"


def test_tries_cost_few_writes(cluster: SimulatedCluster) -> None:
    cluster.delete_run("waiting")
    settle(cluster, QUOTA)
    before = cluster.api.writes
    settle(cluster, 10 * RETRY_SECONDS)
    assert cluster.api.writes - before <= 10 * 4 + 4, "the slot, the refused pod, the slot again"
