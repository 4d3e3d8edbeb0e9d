from pathlib import Path

import pytest
from tests.unit.rl_operator.reconcile.life import Life, make_life


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return make_life(tmp_path)
