from collections.abc import Iterator

import pytest
from tests.unit.tinker_atropos.environments.trial.provider import ScriptedProvider


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider
