"""The limits, each of them reached."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.rl_operator.reader_processes import gone

from rl_operator.file_discovery import Ended, run_limited

pytestmark = pytest.mark.process


def run(arguments: Sequence[str], folder: Path, timeout: float) -> Ended:
    return asyncio.run(run_limited(arguments, folder, os.environ, timeout))


def test_its_output(tmp_path: Path) -> None:
    ended = run(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, 20)
    assert ended == Ended(3, b"out\n", "err", 20)
    assert ended.reason == "the reader ended with code 3: err"


def test_its_limits(tmp_path: Path) -> None:
    kinds = "r.RLIMIT_CORE, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_AS"
    code = f"import resource as r; print(*(r.getrlimit(kind) for kind in ({kinds})))"
    ended = run([sys.executable, "-c", code], tmp_path, 20)
    assert ended.output.decode().strip() == "(0, 0) (10, 10) (4194304, 4194304) (201326592, 201326592)"


def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    before = time.monotonic()
    ended = run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], tmp_path, 1.5)
    assert time.monotonic() - before < 20
    assert (ended.code, ended.reason) == (None, "that took longer than 1.5 s")
    assert gone(int((tmp_path / "pid").read_text()))


def test_an_endless_loop_is_killed(tmp_path: Path) -> None:
    """The limit is the kernel's: here the signal is sent right away."""
    ended = run(["sh", "-c", "kill -XCPU $$"], tmp_path, 20)
    assert ended.code == -signal.SIGXCPU
    assert ended.reason == "that took more than 10 s of CPU time"
