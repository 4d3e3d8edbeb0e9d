"""What `rlctl environments NAME` says of one."""

from collections.abc import Callable
from pathlib import Path

import pytest

OWN = "from atroposlib.envs.base import BaseEnv\n\n\nclass Own(BaseEnv):\n    async def get_next_item(self): ...\n"


@pytest.mark.process
def test_one_that_draws_its_items_itself(call_rlctl: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    code, told, errors = call_rlctl("environments", str(tmp_path / "own.py"), "--local")
    assert code == 0, errors
    assert "It draws its items itself (get_next_item): with several processes, or after a restart, nothing " in told
