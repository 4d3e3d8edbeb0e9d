"""W&B queried over HTTP, at a server that speaks its protocol and fails as servers do."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from tests.unit.rl_operator.metrics.trainers import POD
from tests.unit.rl_operator.patience import until
from tests.unit.rl_operator.status.builders import make_run
from tests.wandb_server import (
    CLOSED_ENTITY,
    ENTITY,
    WandbRun,
    WandbServer,
    running_wandb_server,
)

from rl_operator.api.training_run import TrainingRun
from rl_operator.metrics.wandb_poller import LONGEST_SECONDS, AskedRun, Outage, OutageError, WandbPoller, retry_after
from rl_operator.metrics.wandb_query import WandbProject

KEY = "k" * 40
BASIC = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()


def run_of(uid: str) -> TrainingRun:
    return make_run().with_changes(metadata=make_run().metadata.with_changes(uid=uid))


class Asked:
    """The requested runs, and what was reported of them."""

    def __init__(self, *runs: AskedRun) -> None:
        self.runs = list(runs)
        self.told: list[str] = []

    def __call__(self) -> Iterator[AskedRun]:
        return iter(self.runs)


def asked(server: WandbServer, uid: str, *, project: str = "rl", wanted: bool = True) -> AskedRun:
    return AskedRun(POD, uid, WandbProject(server.url, ENTITY, project), wanted)


@pytest.fixture
async def runs_server() -> AsyncIterator[WandbServer]:
    async with running_wandb_server() as server:
        yield server


@asynccontextmanager
async def polling(runs: Asked, interval_seconds: float = 0.05) -> AsyncIterator[WandbPoller]:
    poller = WandbPoller(runs, lambda pod: runs.told.append(pod.uid), key=KEY, interval_seconds=interval_seconds)
    task = asyncio.create_task(poller.run())
    try:
        yield poller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def queries(server: WandbServer) -> list[tuple[str, int]]:
    """Project and number of runs of each query."""
    return [(body["variables"]["project"], body["variables"]["perPage"]) for body in server.queries]


async def until_asked(server: WandbServer, times: int) -> None:
    target = server.requests + times
    await until(f"asked {times} times more", lambda: server.requests >= target)


async def test_a_run_is_found_by_its_id_alone(runs_server: WandbServer) -> None:
    runs_server.runs["u-1"] = WandbRun("rl", "u-1", fields={"displayName": "u-2"}, summary={"train/loss": 0.25})
    runs_server.runs["u-10"] = WandbRun("rl", "u-10", summary={"train/loss": 9.0})
    runs = Asked(asked(runs_server, "u-1"), asked(runs_server, "u-2"))
    async with polling(runs) as poller:
        await until("it is known", lambda: poller.run_of(run_of("u-1")) is not None)
        found = poller.run_of(run_of("u-1"))
        assert (found.state, found.metrics.loss) == ("running", 0.25)
        assert poller.run_of(run_of("u-2")) is None
    assert runs_server.authorizations == {BASIC}


async def test_many_runs_are_one_query_per_hundred_and_project(runs_server: WandbServer) -> None:
    many = [asked(runs_server, f"u-{number}") for number in range(250)]
    runs = Asked(*many, asked(runs_server, "v-1", project="other"))
    async with polling(runs, interval_seconds=30.0):
        await until("all are asked for", lambda: len(runs_server.queries) == 4)
    assert sorted(queries(runs_server)) == [("other", 1), ("rl", 50), ("rl", 100), ("rl", 100)]


async def test_no_run_is_queried_more_often_than_the_interval(runs_server: WandbServer) -> None:
    interval, begun, moments = 0.2, asyncio.get_running_loop().time(), list[float]()
    runs = Asked(asked(runs_server, "u-1"))
    async with polling(runs, interval_seconds=interval):
        for number in range(1, 4):
            await until("the next", lambda number=number: len(runs_server.queries) >= number)  # type: ignore[misc]
            moments.append(asyncio.get_running_loop().time())
    assert all(moment - begun >= count * interval - 1e-3 for count, moment in enumerate(moments)), moments


async def test_only_relevant_news_is_reported(runs_server: WandbServer) -> None:
    """Metrics are news where the trainer has none; a state always is."""
    run = runs_server.runs["u-1"] = WandbRun("rl", "u-1", summary={"train/loss": 1.0})
    runs = Asked(asked(runs_server, "u-1", wanted=False))
    async with polling(runs):
        await until("it is told of", lambda: len(runs.told) == 1)
        run.summary = {"train/loss": 0.5}
        await until_asked(runs_server, 2)
        assert len(runs.told) == 1
        run.state = "crashed"
        await until("its state is told", lambda: len(runs.told) == 2)
        runs.runs = [asked(runs_server, "u-1", wanted=True)]
        run.summary = {"train/loss": 0.1}
        await until("its figures are told", lambda: len(runs.told) == 3)
        await until_asked(runs_server, 2)
        assert len(runs.told) == 3


async def test_a_finished_run_is_forgotten(runs_server: WandbServer) -> None:
    runs_server.runs["u-1"] = WandbRun("rl", "u-1")
    runs = Asked(asked(runs_server, "u-1"))
    async with polling(runs) as poller:
        await until("it is known", lambda: poller.run_of(run_of("u-1")) is not None)
        runs.runs = []
        await until("it is forgotten", lambda: poller.run_of(run_of("u-1")) is None)
        calls = runs_server.requests
        runs.runs = [asked(runs_server, "u-2")]
        await until_asked(runs_server, 1)
    assert queries(runs_server)[-1] == ("rl", 1)
    assert runs_server.requests >= calls


@pytest.mark.parametrize("status", [500, 502, 429, 401, 403])
async def test_an_outage_keeps_known_metrics_is_logged_once_and_retried_later(
    runs_server: WandbServer, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    runs_server.runs["u-1"] = WandbRun("rl", "u-1")
    runs = Asked(asked(runs_server, "u-1"))
    with caplog.at_level(logging.INFO, "rl_operator"):
        async with polling(runs) as poller:
            await until("it is known", lambda: poller.run_of(run_of("u-1")) is not None)
            runs_server.status, runs_server.headers = status, {"Retry-After": "0"}
            before = runs_server.requests
            await until_asked(runs_server, 1 if status in (401, 403) else 3)
            assert poller.run_of(run_of("u-1")) is not None
            assert len(runs.told) == 1
            if status in (401, 403):
                return
            runs_server.status = None
            await until("it answers again", lambda: "answers again" in caplog.text)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1, caplog.text
    assert f"HTTP {status}" in lines[0].getMessage()
    assert KEY not in caplog.text
    assert runs_server.requests > before


async def test_a_busy_server_gets_the_pause_it_asks_for(runs_server: WandbServer) -> None:
    runs_server.status, runs_server.headers = 429, {"Retry-After": "30"}
    runs, healthy = Asked(asked(runs_server, "u-1")), Asked()
    async with running_wandb_server() as other, polling(runs):
        healthy.runs = [asked(other, "u-1")]
        async with polling(healthy):
            await until_asked(runs_server, 1)
            await until_asked(other, 5)  # that many rounds
    assert runs_server.requests == 1


async def test_a_silent_server_does_not_delay_others(runs_server: WandbServer) -> None:
    runs_server.silent = True
    async with running_wandb_server() as other:
        other.runs["u-2"] = WandbRun("rl", "u-2")
        runs = Asked(asked(runs_server, "u-1"), asked(other, "u-2"))
        async with polling(runs) as poller:
            await until("the other answers", lambda: poller.run_of(run_of("u-2")) is not None)
    runs_server.silent = False


async def test_a_forbidden_project_does_not_delay_others(
    runs_server: WandbServer, caplog: pytest.LogCaptureFixture
) -> None:
    runs_server.runs["u-2"] = WandbRun("rl", "u-2")
    foreign = AskedRun(POD, "u-1", WandbProject(runs_server.url, CLOSED_ENTITY, "rl"), metrics_wanted=True)
    async with polling(Asked(foreign, asked(runs_server, "u-2"))) as poller:
        await until("the other answers", lambda: poller.run_of(run_of("u-2")) is not None)
        await until_asked(runs_server, 6)
        assert poller.run_of(run_of("u-1")) is None
    assert caplog.text.count("permission denied") == 1


async def test_a_project_that_does_not_exist_yet_is_no_error(
    runs_server: WandbServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(Asked(asked(runs_server, "u-1"))) as poller:
        await until_asked(runs_server, 2)
        assert poller.run_of(run_of("u-1")) is None
    assert not [record for record in caplog.records if record.name.startswith("rl_operator")]


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1", "nonsense", "http://user:word@127.0.0.1:1"])
async def test_a_base_url_without_a_server_is_an_outage(base_url: str, caplog: pytest.LogCaptureFixture) -> None:
    runs = Asked(AskedRun(POD, "u-1", WandbProject(base_url, "e", "p"), metrics_wanted=True))
    async with polling(runs):
        await until("it is said", lambda: "returns no metrics" in caplog.text)


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Fri, 01 May 2026 12:02:00 GMT", 120.0),
        ("Fri, 01 May 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def test_pauses_double_up_to_a_bound_and_start_over() -> None:
    outage, pauses = Outage("https://w", 60.0), []
    for _ in range(8):
        outage.failed(OutageError("silent", "HTTP 502"), 1000.0)
        pauses.append(outage.over_at - 1000.0)
    assert pauses == [60, 120, 240, 480, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
    outage.answered()
    outage.failed(OutageError("silent", "HTTP 502"), 1000.0)
    assert outage.over_at == 1060.0


@pytest.mark.parametrize(("asked", "pause"), [(5.0, 60.0), (300.0, 300.0), (1e9, 3600.0)])
def test_a_requested_pause_is_honored_within_reason(asked: float, pause: float) -> None:
    outage = Outage("https://w", 60.0)
    outage.failed(OutageError("limited", "HTTP 429", asked), 0.0)
    assert outage.over_at == pause


def test_an_outage_is_one_line_and_its_end_is_another(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("https://w", 60.0)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            outage.failed(OutageError("silent", "HTTP 502"), 0.0)
        outage.answered()
        outage.answered()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed_with_the_key(runs_server: WandbServer, status: int) -> None:
    async with running_wandb_server() as other, polling(Asked(asked(runs_server, "u-1"))):
        runs_server.status, runs_server.headers = status, {"Location": f"{other.url}/graphql"}
        await until_asked(runs_server, 2)
        assert other.requests == 0
