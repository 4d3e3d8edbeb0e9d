"""The ops port: what the operator, people and Prometheus see of the api."""

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tinker_atropos.serving import bind, ops_app, serve
from tinker_atropos.trajectory_api.ops import ServiceCollector, ops_status


@pytest.fixture
async def ops(api):
    registry = CollectorRegistry()
    registry.register(ServiceCollector(api.service, 2))
    app = ops_app(api.service.unready, lambda: ops_status(api.service, 2), registry=registry)
    async with (
        serve(app, bind("127.0.0.1", 0, "RL_OPS_PORT")) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
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
        "buffered": {"groups": 1, "sequences": 1},
        "queued": {"groups": 1, "sequences": 2},
        "delivered": {"groups": 2, "sequences": 4},
    }
    assert status["environments"] == [{"envId": 0, "name": "sort_0", "live": True}]
    assert (status["receivedGroups"], status["deliveredBatches"], status["refusedGroups"]) == (4, 1, {"shape": 1})
    assert status["runOver"] == "the trainer is failed: boom"
    assert status["journal"]["error"] is None
    api.clock.now += 15.1
    assert (await ops.get("/status")).json()["environments"][0]["live"] is False


async def test_metrics(api, ops, build) -> None:
    await api.begin()
    await api.post("/scored_data", build.group())
    await api.http.post("/scored_data", json=build.group(scores=[]))
    await api.post("/rl/progress", {"steps_trained": 3})
    text = (await ops.get("/metrics")).text
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples[("rl_api_sequences", "queued")] == 2
    assert samples[("rl_api_groups_refused_total", "shape")] == 1
    assert samples[("rl_api_groups_received_total",)] == 1
    assert samples[("rl_api_step",)] == 3
    assert samples[("rl_api_worker_restarts_total",)] == 2
    assert samples[("rl_api_journal_failing",)] == 0
    assert samples[("rl_api_journal_bytes",)] > 0


async def test_readiness_is_the_journals(api, ops, build) -> None:
    assert (await ops.get("/healthz")).status_code == 200
    await api.begin()
    api.service.journal._writer.execute("PRAGMA max_page_count = 1")
    assert (await api.http.post("/scored_data", json=build.group(images="x" * 100_000))).status_code == 503
    health = await ops.get("/healthz")
    assert (health.status_code, "the disk is full" in health.text) == (503, True)
    assert "rl_api_journal_failing 1.0" in (await ops.get("/metrics")).text
