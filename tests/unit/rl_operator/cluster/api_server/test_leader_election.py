"""Leader election against a Lease with the API server's rules, over real HTTP."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.rl_operator.cluster.fake_api import write_kubeconfig
from tests.unit.rl_operator.patience import until

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.leader_election import (
    LeaderElector,
    LeaseLostError,
    LeaseThread,
    LeaseTimes,
    elector_of,
    lead,
)
from rl_operator.operator_errors import ForbiddenError, OperatorError
from rl_operator.operator_settings import OperatorSettings

QUICK = LeaseTimes(duration=1)
SPEC = {"leaseDurationSeconds": 1, "acquireTime": "a", "renewTime": "r", "leaseTransitions": 3}


@dataclass
class LeaseApi:
    """One Lease: created once, replaced only against its resourceVersion."""

    lease: dict[str, Any] | None = None
    trouble: Callable[[str], Awaitable[int]] | None = None
    """Asked with the method before each call: a code to answer with, 0: none."""
    versions: int = 0
    methods: list[str] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.methods.append(request.method)
        if self.trouble and (code := await self.trouble(request.method)):
            return self._refusal(code)
        body = json.loads(await request.text() or "{}")
        match request.method:
            case "POST" if self.lease is None:
                return self._stored(body)
            case "PUT" | "GET" if self.lease is None:
                return self._refusal(404)
            case "GET":
                return web.json_response(self.lease)
            case "PUT" if body["metadata"]["resourceVersion"] == self.version:
                return self._stored(body)
        return self._refusal(409)

    @property
    def version(self) -> str:
        return str(self.lease["metadata"]["resourceVersion"])

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def held_by(self, holder: str, **spec: Any) -> None:
        """Another client wrote."""
        metadata = {"name": "rl-operator", "namespace": "ops", "labels": {"team": "a"}}
        self._stored({"metadata": metadata, "spec": {**SPEC, "holderIdentity": holder, **spec}})

    def _stored(self, body: dict[str, Any]) -> web.Response:
        self.versions += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.versions)}}
        return web.json_response(self.lease)

    @staticmethod
    def _refusal(code: int) -> web.Response:
        return web.json_response({"kind": "Status", "code": code, "message": f"said {code}"}, status=code)


@asynccontextmanager
async def serving(fake: LeaseApi) -> AsyncIterator[LeaseApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield fake
    await runner.cleanup()


@pytest.fixture
async def api() -> AsyncIterator[LeaseApi]:
    async with serving(LeaseApi()) as fake:
        yield fake


Elect = Callable[..., LeaderElector]


@pytest.fixture
async def elect(api: LeaseApi, tmp_path: Path) -> AsyncIterator[Elect]:
    async with await ClusterClient.connect(str(write_kubeconfig(tmp_path, api.url))) as client:
        yield lambda identity, times=QUICK: LeaderElector(client, "ops", "rl-operator", identity, times=times)


@asynccontextmanager
async def keeping(elector: LeaderElector) -> AsyncIterator[asyncio.Task[None]]:
    await acquired(elector)
    task = asyncio.create_task(elector.keep())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def acquired(elector: LeaderElector) -> None:
    async with asyncio.timeout(60):
        await elector.acquire()


async def test_the_first_candidate_creates_the_lease(api: LeaseApi, elect: Elect) -> None:
    elector = elect("one")
    assert not elector.leads
    await acquired(elector)
    assert elector.leads
    assert api.spec["holderIdentity"] == "one"
    assert (api.spec["leaseDurationSeconds"], api.spec["leaseTransitions"]) == (1, 0)


async def test_a_renewal_changes_only_the_time(api: LeaseApi, elect: Elect) -> None:
    async with keeping(elect("one")):
        first = api.spec
        await until("it is renewed thrice", lambda: api.versions >= 4)
        assert api.spec == {**first, "renewTime": api.spec["renewTime"]}
        assert api.spec["renewTime"] > first["renewTime"]


async def test_a_second_candidate_waits_while_the_lease_is_renewed(api: LeaseApi, elect: Elect) -> None:
    second = elect("two")
    async with keeping(elect("one")) as first:
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(2 * QUICK.duration)
        assert not waiting.done()
        assert api.spec["holderIdentity"] == "one"
        first.cancel()
        await asyncio.wait_for(waiting, 60)
    assert (api.spec["holderIdentity"], api.spec["leaseTransitions"]) == ("two", 1)


@pytest.mark.parametrize("clock", ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
async def test_the_holders_clock_does_not_matter(api: LeaseApi, elect: Elect, clock: str) -> None:
    """A lease from the past is not taken at once, and one from the future is taken eventually."""
    api.held_by("one", renewTime=clock, acquireTime=clock)
    waiting = asyncio.create_task(elect("two").acquire())
    await asyncio.sleep(0.5 * QUICK.duration)
    assert not waiting.done()
    await asyncio.wait_for(waiting, 60)
    assert api.spec["holderIdentity"] == "two"


async def test_its_own_lease_is_taken_over_at_once_and_the_old_process_loses_it(api: LeaseApi, elect: Elect) -> None:
    async with keeping(elect("one")) as former:
        async with asyncio.timeout(0.5 * QUICK.duration):
            await elect("one").acquire()
        assert api.spec["leaseTransitions"] == 0, "the same holder"
        with pytest.raises(LeaseLostError, match="lease ops/rl-operator is held by one now"):
            await former


async def test_a_released_lease_is_free_at_once(api: LeaseApi, elect: Elect) -> None:
    first = elect("one")
    await acquired(first)
    await first.release()
    assert not first.leads
    assert "holderIdentity" not in api.spec
    async with asyncio.timeout(0.5 * QUICK.duration):
        await elect("two").acquire()
    assert api.spec["leaseTransitions"] == 1


async def test_a_lease_is_released_though_a_canceled_renewal_arrived(api: LeaseApi, elect: Elect) -> None:
    elector = elect("one")
    await acquired(elector)
    api._stored({**api.lease, "spec": {**api.spec, "renewTime": "later"}})
    await elector.release()
    assert "holderIdentity" not in api.spec


async def test_a_lease_that_another_process_took_is_not_released(api: LeaseApi, elect: Elect) -> None:
    elector = elect("one")
    await acquired(elector)
    api.held_by("two")
    await elector.release()
    assert api.spec["holderIdentity"] == "two"


async def test_a_process_that_does_not_hold_it_releases_nothing(api: LeaseApi, elect: Elect) -> None:
    api.held_by("one")
    await elect("two").release()
    assert api.methods == []


async def test_another_holder_ends_the_leadership(api: LeaseApi, elect: Elect) -> None:
    async with keeping(elect("one")) as task:
        api.held_by("two")
        with pytest.raises(LeaseLostError, match="is held by two now"):
            await task


async def test_a_label_added_by_others_is_harmless_and_kept(api: LeaseApi, elect: Elect) -> None:
    async with keeping(elect("one")) as task:
        api._stored({**api.lease, "metadata": {**api.lease["metadata"], "labels": {"seen": "yes"}}})
        version = api.versions
        await until("it is renewed again", lambda: api.versions > version + 1)
        assert not task.done()
        assert api.lease["metadata"]["labels"] == {"seen": "yes"}


async def test_a_deleted_lease_is_created_again(api: LeaseApi, elect: Elect) -> None:
    async with keeping(elect("one")) as task:
        api.lease = None
        await until("it is there again", lambda: api.lease is not None)
        assert not task.done()
        assert api.spec["holderIdentity"] == "one"


@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_failures_are_survived_until_others_may_take_over(api: LeaseApi, elect: Elect, code: int) -> None:
    failures = 3

    async def trouble(_: str) -> int:
        nonlocal failures
        failures -= 1
        return code if failures >= 0 else 0

    elector = elect("one", LeaseTimes(duration=2))  # a busy machine answers within its calls' time
    async with keeping(elector) as task:
        api.trouble = trouble
        version = api.versions
        await until("it is renewed again", lambda: api.versions > version)
        assert not task.done()

        failures = 1000
        with pytest.raises(LeaseLostError, match=rf"was not renewed for 2 s: .*{code}"):
            await asyncio.wait_for(task, 60)
        assert elector.leads, "nobody else can have it yet"


async def test_what_the_api_server_said_is_told_though_the_last_call_was_cut_short(api: LeaseApi, elect: Elect) -> None:
    times = LeaseTimes(duration=2)
    elector = elect("one", times)

    async def trouble(_: str) -> int:
        if time.monotonic() > elector._renewed_at + times.patience - times.call:
            await asyncio.sleep(60)
        return 503

    async with keeping(elector) as task:
        api.trouble = trouble
        with pytest.raises(LeaseLostError, match=r"was not renewed for 2 s: .*said 503"):
            await asyncio.wait_for(task, 60)


async def test_an_unresponsive_api_server_is_not_waited_for(api: LeaseApi, elect: Elect) -> None:
    async def trouble(_: str) -> int:
        await asyncio.sleep(60)
        return 0

    elector = elect("one")
    async with keeping(elector) as task:
        api.trouble = trouble
        with pytest.raises(LeaseLostError, match="did not answer in time"):
            await asyncio.wait_for(task, 60)
        assert elector.leads
        assert api.methods.count("PUT") > 1, "a call that hangs is not the last one"


async def test_a_process_that_was_suspended_does_not_ask_the_server(api: LeaseApi, elect: Elect) -> None:
    elector = elect("one")
    async with keeping(elector) as task:
        elector._renewed_at -= QUICK.duration
        assert not elector.leads
        calls = len(api.methods)
        with pytest.raises(LeaseLostError, match="this process stood still"):
            await asyncio.wait_for(task, 60)
        assert len(api.methods) == calls


async def test_missing_permissions_are_named(api: LeaseApi, elect: Elect) -> None:
    async def trouble(_: str) -> int:
        return 403

    api.trouble = trouble
    with pytest.raises(ForbiddenError, match=r"get, create and update for leases .* in namespace ops .*said 403"):
        await acquired(elect("one"))


async def test_an_unreachable_api_server_is_waited_for(api: LeaseApi, elect: Elect) -> None:
    async def trouble(_: str) -> int:
        return 503

    api.trouble = trouble
    waiting = asyncio.create_task(elect("one").acquire())
    await asyncio.sleep(2 * QUICK.patience)
    assert not waiting.done()
    api.trouble = None
    await asyncio.wait_for(waiting, 60)


async def test_one_of_many_simultaneous_candidates_leads(api: LeaseApi, elect: Elect) -> None:
    electors = [elect(str(number)) for number in range(8)]
    tasks = [asyncio.create_task(elector.acquire()) for elector in electors]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.3)
    assert sum(task.done() for task in tasks) == 1
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("identity", ["mine", ""])
async def test_the_lease_is_taken_in_the_operators_namespace_under_its_identity(
    api: LeaseApi, tmp_path: Path, identity: str
) -> None:
    settings = OperatorSettings(operator_namespace="ops", lease_name="one", lease_seconds=8, identity=identity)
    async with await ClusterClient.connect(str(write_kubeconfig(tmp_path, api.url))) as client:
        await elector_of(settings, client).acquire()
    assert api.lease["metadata"].items() >= {"name": "one", "namespace": "ops"}.items()
    assert api.spec["leaseDurationSeconds"] == 8
    holder = api.spec["holderIdentity"]
    # Outside of a cluster several processes share a host.
    assert holder == identity or (holder.startswith(f"{socket.gethostname()}-") and not identity)


async def test_without_a_lease_the_work_starts_at_once() -> None:
    began: list[str] = []
    await lead(None, lambda: began.append("now"))
    assert began == ["now"]


@contextmanager
def serving_elsewhere() -> Iterator[LeaseApi]:
    """In a thread and a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    served = serving(LeaseApi())
    try:
        yield asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(60)
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


RENEWALS = 7
"""Of which four happen within the patience: with the main loop's help alone the lease would have been lost."""


async def test_the_lease_is_renewed_while_the_main_loop_stands_still(tmp_path: Path) -> None:
    settings = OperatorSettings(operator_namespace="ops", lease_name="one", lease_seconds=4, identity="mine")
    lost: list[str] = []
    with serving_elsewhere() as elsewhere:
        connect = partial(ClusterClient.connect, str(write_kubeconfig(tmp_path, elsewhere.url)))
        async with LeaseThread(settings, connect, lambda: lost.append("lost")) as lease:
            began = asyncio.Event()
            leading = asyncio.create_task(lead(lease, began.set))
            await began.wait()
            give_up_at = time.monotonic() + 60
            while elsewhere.methods.count("PUT") < RENEWALS and time.monotonic() < give_up_at:
                time.sleep(0.05)  # noqa: ASYNC251 -- the whole loop, not this task alone
            assert (lost, lease.leads, elsewhere.methods.count("PUT") >= RENEWALS) == ([], True, True)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await lease.release()
        assert (lost, "holderIdentity" in elsewhere.spec) == ([], False)


async def test_settings_that_cannot_be_read_leave_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    connect = partial(ClusterClient.connect, str(tmp_path / "missing"))
    with pytest.raises(OperatorError):
        await LeaseThread(OperatorSettings(), connect).__aenter__()
    assert threading.active_count() == before
