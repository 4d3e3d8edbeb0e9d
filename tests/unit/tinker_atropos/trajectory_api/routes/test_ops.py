"""The ops port: what the operator, users and Prometheus see of the api."""

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tinker_atropos.serving import bind, ops_app, serve
from tinker_atropos.trajectory_api.routes.ops import ServiceCollector, ops_status


@pytest.fixture
async def ops(api):
    registry = CollectorRegistry()
    registry.register(ServiceCollector(api.service, 2))
    app = ops_app(api.service.unready, lambda: ops_status(api.service, 2), registry=registry)
    async with (
        serve(app, bind("127.0.0.1", 0, "RL_OPS_PORT")) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        yield client


async def test_status_before_anything(ops) -> None:
    status = (await ops.get("/status")).json()
    assert (status["registered"], status["started"], status["step"], status["totalSteps"]) == (False, False, 0, None)
    assert status["leases"]["trainer"] == {"state": "absent", "reason": None}


async def test_status_of_a_run(api, ops, build) -> None:
    await api.begin(num_steps=10)
    await api.post("/scored_data_list", [build.group()] * 3 + [build.group(size=1)])
    await api.get("/batch")
    await api.http.post("/scored_data", json=build.group(scores=[]))
    await api.lease("trainer", "failed", "boom")
    status = (await ops.get("/status")).json()
    assert status["queue"] == {
        "buffered": {"groups": 1, "rollouts": 1},
        "queued": {"groups": 1, "rollouts": 2},
        "delivered": {"groups": 2, "rollouts": 4},
    }
    assert status["environments"] == [{"envId": 0, "name": "sort_0", "live": True}]
    assert status["books"] == await api.books()
    assert status["books"]["groups"]["refused"] == {"scores": 1}
    assert status["keptBatches"] == {"fromStep": 0, "batches": 0}
    assert (status["heldPosts"], status["oldestQueuedSeconds"] < 60) == (0, True)
    assert status["runOver"] == "the trainer is failed: boom"
    assert status["journal"]["error"] is None
    api.clock.now += 15.1
    assert (await ops.get("/status")).json()["environments"][0]["live"] is False


async def test_metrics(api, ops, build) -> None:
    await api.begin(batch_size=2)
    for number in range(4):
        await api.post("/scored_data", build.group(first_token=number))
    await api.post("/scored_data", build.group(first_token=0))
    await api.http.post("/scored_data", json=build.group(scores=[]))
    await api.get("/batch?step=0")
    await api.get("/batch?step=1")
    await api.post("/rl/drop", {"ids": [2], "reason": "stale"})
    await api.post("/rl/progress", {"steps_trained": 1})
    text = (await ops.get("/metrics")).text
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("rl_api_groups", "buffered"): 0,
        ("rl_api_groups", "queued"): 2,
        ("rl_api_groups", "delivered"): 0,
        ("rl_api_groups_received_total",): 4,
        ("rl_api_groups_trained",): 1,
        ("rl_api_groups_duplicates_total",): 1,
        ("rl_api_groups_dropped_total", "stale"): 1,
        ("rl_api_groups_refused_total", "scores"): 1,
        ("rl_api_groups_replay_evicted_total",): 0,
        ("rl_api_rollouts", "queued"): 4,
        ("rl_api_rollouts_received_total",): 8,
        ("rl_api_kept_batches",): 1,
        ("rl_api_held_posts",): 0,
        ("rl_api_step",): 1,
        ("rl_api_worker_restarts_total",): 2,
        ("rl_api_journal_failing",): 0,
    }
    assert {name: samples[name] for name in expected} == expected
    assert samples[("rl_api_journal_bytes",)] > 0
    assert 0 < samples[("rl_api_oldest_queued_seconds",)] < 60


async def test_readiness_follows_the_journal(api, ops, build) -> None:
    assert (await ops.get("/healthz")).status_code == 200
    await api.begin()
    api.service.journal._database._writer.execute("PRAGMA max_page_count = 1")
    assert (await api.http.post("/scored_data", json=build.group(images="x" * 100_000))).status_code == 503
    health = await ops.get("/healthz")
    assert (health.status_code, "the disk is full" in health.text) == (503, True)
    assert "rl_api_journal_failing 1.0" in (await ops.get("/metrics")).text
