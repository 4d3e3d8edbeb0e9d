"""A runtime from a newer release exists: its runs report which field cannot be read, not that it is missing."""

from datetime import UTC, datetime
from pathlib import Path

from tests.unit.rl_operator.cluster.documents import run_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.cluster_run_client import ClusterRunClient
from rl_operator.reconcile import ReconcilePace, reconcile

STATUS = "/apis/rl-operator.dev/v1alpha1/namespaces/team-a/rltrainingruns/sorting/status"


async def test_the_unreadable_field_is_named(tmp_path: Path) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as api_client:
        caches = Caches()
        caches.runs.put(run_document(1))
        caches.runtimes.put(runtime_document(2, novelty=1))
        api.answers("PUT", STATUS, Answer(run_document(3)))
        client = ClusterRunClient(api_client, caches, EventRecorder(api_client), ToldMetrics())
        await reconcile(("team-a", "sorting"), client, lambda: datetime(2026, 1, 2, tzinfo=UTC), ReconcilePace(1, 1))
        (refusal,) = api.asked("PUT", STATUS)[0].body["status"]["refusals"]
        assert (refusal["code"], refusal["given"]) == ("RuntimeInvalid", "tiny")
        assert "spec.novelty" in refusal["hint"]
