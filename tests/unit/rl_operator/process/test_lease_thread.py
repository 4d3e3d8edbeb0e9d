"""What the process does with its lease; the end of one without it is in tests/integration/cluster/test_failover.py."""

import asyncio
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving, write_kubeconfig

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.operator_errors import OperatorError
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.lease_thread import LeaseThread, elector_of, lead

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"


@pytest.mark.parametrize("identity", ["mine", ""])
async def test_the_lease_is_taken_in_the_operators_namespace_under_its_identity(tmp_path: Path, identity: str) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        api.answers("POST", LEASES, Answer({"metadata": {"resourceVersion": "1"}, "spec": {}}))
        settings = OperatorSettings(operator_namespace="ops", lease_name="one", lease_seconds=8, identity=identity)
        elector = elector_of(settings, client)
        await elector.acquire()
        body = api.asked("POST", LEASES)[0].body
    assert body["metadata"] == {"name": "one", "namespace": "ops"}
    assert body["spec"]["leaseDurationSeconds"] == 8
    holder = body["spec"]["holderIdentity"]
    # Outside of a cluster several processes share a host.
    assert holder == identity or (holder.startswith(f"{socket.gethostname()}-") and not identity)


async def test_without_a_lease_the_work_starts_at_once() -> None:
    began: list[str] = []
    await lead(None, lambda: began.append("now"))
    assert began == ["now"]


class ElsewhereApi:
    """An API server in a thread of its own, with one Lease that anyone may take."""

    def __init__(self) -> None:
        self.renewals = 0
        self.enough = threading.Event()
        self.holder: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._runner: web.AppRunner | None = None

    def kubeconfig(self, folder: Path) -> Path:
        return write_kubeconfig(folder, self.url)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.holder = body["spec"].get("holderIdentity")
        self.renewals += request.method == "PUT"
        if self.renewals == RENEWALS:
            self.enough.set()
        body["metadata"]["resourceVersion"] = str(self.renewals + 1)
        return web.json_response(body)

    async def _find(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    async def _serve(self) -> str:
        application = web.Application()
        application.router.add_get(f"{LEASES}/one", self._find)
        application.router.add_post(LEASES, self._answer)
        application.router.add_put(f"{LEASES}/one", self._answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


RENEWALS = 7
"""Of which four happen within the patience: with the main loop's help alone the lease would have been lost."""


async def test_the_lease_is_renewed_while_the_main_loop_stands_still(tmp_path: Path) -> None:
    settings = OperatorSettings(operator_namespace="ops", lease_name="one", lease_seconds=4, identity="mine")
    lost: list[str] = []
    with ElsewhereApi() as api:
        connect = partial(ClusterClient.connect, str(api.kubeconfig(tmp_path)))
        async with LeaseThread(settings, connect, lambda: lost.append("lost")) as lease:
            began = asyncio.Event()
            leading = asyncio.create_task(lead(lease, began.set))
            await began.wait()
            api.enough.wait(60)  # the whole loop, not this task alone
            assert (lost, lease.leads, api.renewals >= RENEWALS) == ([], True, True)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await lease.release()
        assert (lost, api.holder) == ([], None)


async def test_settings_that_cannot_be_read_leave_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    connect = partial(ClusterClient.connect, str(tmp_path / "missing"))
    with pytest.raises(OperatorError):
        await LeaseThread(OperatorSettings(), connect).__aenter__()
    assert threading.active_count() == before
