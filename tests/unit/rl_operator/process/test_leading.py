"""What the process does with its lease; the end of one without it is in tests/integration/cluster/test_failover.py."""

import socket
from pathlib import Path

import pytest
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving

from rl_operator.process.leading import elector_of, lead
from rl_operator.settings import OperatorSettings

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"


@pytest.mark.parametrize("identity", ["mine", ""])
async def test_the_lease_is_taken_in_the_operators_namespace_under_its_identity(tmp_path: Path, identity: str) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        api.answers("POST", LEASES, Answer({"metadata": {"resourceVersion": "1"}, "spec": {}}))
        settings = OperatorSettings(operator_namespace="ops", lease_name="one", lease_seconds=8, identity=identity)
        elector = elector_of(settings, client)
        assert elector is not None
        await elector.acquire()
        body = api.asked("POST", LEASES)[0].body
    assert body["metadata"] == {"name": "one", "namespace": "ops"}
    assert body["spec"]["leaseDurationSeconds"] == 8
    holder = body["spec"]["holderIdentity"]
    # Outside of a cluster several processes share a host.
    assert holder == identity or (holder.startswith(f"{socket.gethostname()}-") and not identity)


async def test_without_a_lease_the_work_starts_at_once(tmp_path: Path) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        assert elector_of(OperatorSettings(lease_name=""), client) is None
        began: list[str] = []
        await lead(None, lambda: began.append("now"))
        assert began == ["now"]
        assert api.requests == []
