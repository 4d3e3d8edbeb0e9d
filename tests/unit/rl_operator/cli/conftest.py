"""rlctl in this process, over a state folder of its own."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_operator.cli import main
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore


@pytest.fixture
def store_of_rlctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateStore:
    """An empty state folder; the caller has no key."""
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RL_STATE_DIR", str(tmp_path / "state"))
    return StateStore(Layout(tmp_path / "state"))


@pytest.fixture
def call_rlctl(
    store_of_rlctl: StateStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Rlctl with these arguments: its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rlctl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call
