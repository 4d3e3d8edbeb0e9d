import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, Request
from tests.unit.rl_operator.patience import until

from rl_operator.cluster.api_server import event_recorder
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder

PATH = "/apis/events.k8s.io/v1/namespaces/team-a/events"
RUN = samples.make_run()


@pytest.fixture
async def recorder(client: ClusterClient) -> AsyncIterator[EventRecorder]:
    made = EventRecorder(client, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_asked(api: FakeApi, count: int) -> list[Request]:
    await until(f"{count} requests", lambda: len(api.requests) >= count)
    return api.requests


async def test_an_event_names_the_object_it_is_about(api: FakeApi, recorder: EventRecorder) -> None:
    api.answers("POST", PATH, Answer({}, 201))
    recorder.record(RUN, "Warning", "TrainerFailed", "loss is nan" * 200)
    (request,) = await until_asked(api, 1)
    body = request.body
    assert body["regarding"]["uid"] == samples.UID
    assert (body["type"], body["reason"], body["eventTime"]) == (
        "Warning", "TrainerFailed", "2026-01-02T03:04:05.000000Z",
    )  # fmt: skip
    assert len(body["note"]) == event_recorder.MAX_NOTE


async def test_an_event_about_a_cluster_scoped_object_lives_in_the_default_namespace(
    api: FakeApi, recorder: EventRecorder
) -> None:
    api.answers("POST", "/apis/events.k8s.io/v1/namespaces/default/events", Answer({}, 201))
    recorder.record(samples.TINY, "Normal", "CatalogRead", "1 environment in image i:1.")
    (request,) = await until_asked(api, 1)
    assert request.body["regarding"] == {
        "apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLRuntime", "name": "tiny", "uid": "",
    }  # fmt: skip


async def test_a_repeated_event_is_counted(api: FakeApi, recorder: EventRecorder) -> None:
    api.answers("POST", PATH, Answer({}, 201))
    recorder.record(RUN, "Normal", "BackOff", "again")
    (first,) = await until_asked(api, 1)
    path = f"{PATH}/{first.body['metadata']['name']}"
    api.answers("PATCH", path, Answer({}))
    recorder.record(RUN, "Normal", "BackOff", "again")
    recorder.record(RUN, "Normal", "BackOff", "again")
    requests = await until_asked(api, 3)
    assert [r.body["series"]["count"] for r in requests[1:]] == [2, 3]


async def test_after_a_restart_the_old_event_is_found_by_its_name(api: FakeApi, recorder: EventRecorder) -> None:
    api.answers("POST", PATH, Answer({"message": "exists"}, 409))
    recorder.record(RUN, "Normal", "BackOff", "again")
    requests = await until_asked(api, 2)
    assert requests[1].path == f"{PATH}/{requests[0].body['metadata']['name']}"


async def test_a_refusing_api_server_does_not_stop_the_recorder(api: FakeApi, recorder: EventRecorder) -> None:
    api.answers("POST", PATH, Answer({"message": "no rights"}, 403), Answer({}, 201))
    recorder.record(RUN, "Normal", "One", "1")
    recorder.record(RUN, "Normal", "Two", "2")
    requests = await until_asked(api, 2)
    assert [r.body["reason"] for r in requests] == ["One", "Two"]


async def test_events_yield_to_runs_and_keep_their_time(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PATH, Answer({}, 201))
    moments = iter(datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC) for second in range(60))
    recorder = EventRecorder(client, now=lambda: next(moments))
    for number in range(5):
        recorder.record(RUN, "Normal", "Starting", str(number))
    loop = asyncio.get_running_loop()
    began, task = loop.time(), asyncio.create_task(recorder.run())
    requests = await until_asked(api, 5)
    assert loop.time() - began >= 4 * event_recorder.PAUSE_SECONDS
    assert [r.body["eventTime"][17:19] for r in requests] == ["00", "01", "02", "03", "04"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_events_wait_longer_while_runs_wait(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PATH, Answer({}, 201))
    recorder = EventRecorder(client, busy=lambda: True)
    for number in range(3):
        recorder.record(RUN, "Normal", "Starting", str(number))
    loop = asyncio.get_running_loop()
    began, task = loop.time(), asyncio.create_task(recorder.run())
    await until_asked(api, 3)
    assert loop.time() - began >= 2 * event_recorder.BUSY_PAUSE_SECONDS
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_excess_events_are_dropped_immediately(client: ClusterClient) -> None:
    idle = EventRecorder(client)
    for number in range(event_recorder.QUEUE_SIZE + 5):
        idle.record(RUN, "Normal", "Flood", str(number))
