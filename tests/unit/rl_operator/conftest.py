from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.rl_operator.cluster.fake_api import FakeApi, connect, serving

from rl_operator.cluster.api_server.client import ClusterClient


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake:
        yield fake


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[ClusterClient]:
    async with await connect(api, tmp_path) as connected:
        yield connected
