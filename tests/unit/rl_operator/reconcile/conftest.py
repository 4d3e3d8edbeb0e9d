from pathlib import Path

import pytest
from tests.unit.rl_operator.reconcile.family import Family
from tests.unit.rl_operator.reconcile.life import Life, make_life

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return make_life(tmp_path)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return Family(StateStore(Layout(tmp_path)))
