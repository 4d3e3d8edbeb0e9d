import pytest

from rl_operator.cluster.cache.caches import Caches


@pytest.fixture
def caches() -> Caches:
    return Caches()
