"""The progress of an install, where there is no terminal and where there is one."""

from types import SimpleNamespace

import pytest

from rl_operator.cli.views.installing import installing


def test_without_a_terminal_there_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([0.0, 0.5, 3.0, 12.0, 13.0])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("rl_operator.cli.views.installing.time", clock)
    with installing("verifiers") as progress:
        for step in ("making a virtual environment", "Resolved 118 packages", "Downloading numpy", "Downloaded numpy"):
            progress(step)
    assert capsys.readouterr().err.splitlines() == [
        "Installing verifiers",
        "      0s  making a virtual environment",
        "     12s  Downloading numpy",
    ]


def test_nothing_is_said_of_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with installing("verifiers"):
        pass
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_last_step_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with installing("mine[extra]") as progress:
        progress("uv installs mine[extra]")
    assert "mine[extra]" in capsys.readouterr().err
