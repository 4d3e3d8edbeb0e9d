"""The limits, each of them reached."""

import asyncio
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.rl_operator.discovery.processes import gone

from rl_operator.discovery.child import Ended, run_limited, run_limited_blocking

pytestmark = pytest.mark.process

Run = Callable[[Sequence[str], Path, float], Ended]


def in_a_loop(arguments: Sequence[str], folder: Path, timeout: float) -> Ended:
    return asyncio.run(run_limited(arguments, folder, os.environ, timeout))


def blocking(arguments: Sequence[str], folder: Path, timeout: float) -> Ended:
    return run_limited_blocking(arguments, folder, os.environ, timeout)


@pytest.fixture(params=[blocking, in_a_loop], ids=["blocking", "in a loop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_what_it_says(run: Run, tmp_path: Path) -> None:
    ended = run(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, 20)
    assert ended == Ended(3, b"out\n", "err", 20)
    assert ended.reason == "the reader ended with code 3: err"


def test_its_limits(run: Run, tmp_path: Path) -> None:
    kinds = "r.RLIMIT_CORE, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_AS"
    code = f"import resource as r; print(*(r.getrlimit(kind) for kind in ({kinds})))"
    ended = run([sys.executable, "-c", code], tmp_path, 20)
    assert ended.output.decode().strip() == "(0, 0) (10, 10) (4194304, 4194304) (201326592, 201326592)"


def test_it_hangs_and_is_killed_with_its_children(run: Run, tmp_path: Path) -> None:
    before = time.monotonic()
    ended = run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], tmp_path, 1.5)
    assert time.monotonic() - before < 20
    assert (ended.code, ended.reason) == (None, "that took longer than 1.5 s")
    assert gone(int((tmp_path / "pid").read_text()))


def test_it_turns_in_circles(tmp_path: Path) -> None:
    """The limit is the kernel's: the signal is sent here after no time at all."""
    ended = blocking(["sh", "-c", "kill -XCPU $$"], tmp_path, 20)
    assert ended.code == -signal.SIGXCPU
    assert ended.reason == "that took more than 10 s of CPU time"


def test_both_ways_take_the_same() -> None:
    assert inspect.signature(run_limited) == inspect.signature(run_limited_blocking)
