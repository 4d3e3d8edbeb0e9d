"""Start-up time is a feature: what no command needs is not imported."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

HEAVY = ("aiohttp", "kubernetes", "kopf", "pydantic", "rich.live", "yaml", "prometheus_client")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        pytest.param("from rl_operator.cli.app import app; app(['--help'], standalone_mode=False)", set(), id="help"),
        pytest.param(
            "from rl_operator.cli.commands.list_runs import list_runs; list_runs(local=True)", set(), id="list --local"
        ),
    ],
)
def test_a_command_imports_only_what_it_needs(code: str, allowed: set[str], tmp_path: object) -> None:
    show = f"import sys; {code}; sys.exit(','.join(m for m in {HEAVY} if m in sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", show], env={"RL_STATE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert set(filter(None, ended.stderr.strip().split(","))) == allowed
