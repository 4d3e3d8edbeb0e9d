"""A scripted run that keeps a ledger outside the state folder: which process trained what, and which were running."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.local.conftest import Rlctl
from tests.integration.local.scripted import start_scripted

from rl_operator.local.state.locks import holder, is_held

STEPS, HELD = 8, 3
"""A trainer makes no more than HELD of them before it may finish: nothing ends before a test has done its worst."""

LEDGER = """
import fcntl
def note(file, word):
    with open(f"{LEDGER}/{file}", "a") as notes:
        notes.write(f"{word}\\n")
def held(file):
    with open(f"{LEDGER}/{file}", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
note("pids", os.getpid())
"""

TRAINER = """
def stand(outcome, **fields):
    try:
        result(outcome, stepsTrained=done, totalSteps=STEPS, statePath=f"tinker://s/weights/{done}", **fields)
    except OSError:
        pass
def save(*_):
    while not os.path.exists(f"{LEDGER}/save"):
        time.sleep(0.01)
    stand("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
alone = open(f"{LEDGER}/training", "a")
patience = time.monotonic() + 2
while True:
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:  # an environment that tries the lock has it for a moment, a trainer for seconds
        if time.monotonic() > patience:
            note("overlaps", os.environ["RL_ATTEMPT"])
            break
        time.sleep(0.01)
done = len(open(f"{LEDGER}/steps").readlines()) if os.path.exists(f"{LEDGER}/steps") else 0
serve()
stand("running")
note("stood", "running")
seen = False
while done < STEPS:
    time.sleep(0.1)
    if seen and not held("serving"):
        stand("failed", error={"class": "environment", "message": "the environment is gone"})
        sys.exit(1)
    seen = seen or held("serving")
    if seen and (done < HELD or os.path.exists(f"{LEDGER}/finish")):
        done += 1
        note("steps", done)
        stand("running")
stand("succeeded")
"""
"""Goes on from the steps that are in the ledger, and says so when it finds another trainer at work."""

ENVIRONMENT = """
while not os.path.exists(f"{LEDGER}/go"):
    time.sleep(0.01)
while not held("training"):
    time.sleep(0.01)
serving = open(f"{LEDGER}/serving", "a")
fcntl.flock(serving, fcntl.LOCK_EX)
serve()
while held("training"):
    time.sleep(0.01)
serving.close()
while not os.path.exists(f"{LEDGER}/leave"):
    time.sleep(0.01)
"""
"""Serves once it may, ends once the trainer has ended and it may."""


class Scene:
    """One scripted run, and what its processes write down."""

    def __init__(self, rlctl: Rlctl, ledger: Path) -> None:
        self.rlctl = rlctl
        self._ledger = ledger
        ledger.mkdir()

    def start(self) -> None:
        self.put()
        self.look()

    def put(self) -> None:
        """The run exists, and has no supervisor yet."""
        words = f"LEDGER, STEPS, HELD = {str(self._ledger)!r}, {STEPS}, {HELD}\n{LEDGER}"
        start_scripted(self.rlctl.store, "run", trainer=words + TRAINER, environment=words + ENVIRONMENT)

    def allow(self, *what: str) -> None:
        """go: the environment may serve; finish: a trainer may make its last steps; save: one that is asked to stop may
        save and end; leave: the environment may end.
        """
        for each in what:
            (self._ledger / each).touch()

    def look(self) -> None:
        """What a user does who wonders: any look at the run starts its supervisor."""
        assert self.rlctl("list", "--local").returncode == 0

    def noted(self, file: str) -> list[str]:
        path = self._ledger / file
        return path.read_text().splitlines() if path.exists() else []

    def until_held(self) -> None:
        self.until(lambda: len(self.noted("steps")) == HELD, f"{HELD} steps")

    def until(self, holds: Callable[[], object], awaited: str) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline, f"waited 120 s for {awaited}"
            time.sleep(0.02)

    def until_phase(self, phase: str) -> dict[str, Any]:
        return self.rlctl.wait_for("run", lambda status: status.get("phase") == phase, f"phase {phase}")

    def container(self, name: str) -> int:
        pod = self.rlctl.store.get("RLTrainingRun", "default", "run")
        assert pod is not None
        lock = self.rlctl.layout.pod("default", pod["status"]["podName"]).lock(name)
        # A busy supervisor may sign a lock later than the process with it makes its first steps.
        self.until(partial(holder, lock), f"the process id of container {name}")
        pid = holder(lock)
        assert pid is not None, f"container {name} does not run"
        return pid

    def supervisor(self) -> int:
        pid = self.rlctl.supervisor("run")
        assert pid is not None
        return pid

    def reaper(self) -> int:
        listed = subprocess.run(["ps", "-axwwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = (line.split(maxsplit=2) for line in listed.stdout.splitlines())
        return next(
            int(pid) for pid, parent, arguments in rows if int(parent) == self.supervisor() and "reaper" in arguments
        )

    def kill(self, *victims: str) -> None:
        """All at once: none of them can report to another."""
        find = {"supervisor": self.supervisor, "reaper": self.reaper}
        pids = [find[name]() if name in find else self.container(name) for name in victims]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:  # a supervisor that is still dying is taken for one at work
            self.until(partial(is_gone, pid), f"process {pid} to be gone")

    def check(self) -> None:
        """What holds however the run ended."""
        self.rlctl.until_unsupervised("run")
        assert self.noted("overlaps") == [], "two trainers were at work at once"
        steps = [int(step) for step in self.noted("steps")]
        assert steps == list(range(1, len(steps) + 1)), "a step was trained twice"
        for pid in map(int, self.noted("pids")):
            self.until(partial(is_gone, pid), f"process {pid} to be gone")
        held = [path for path in self.rlctl.root.rglob("*lock") if path.is_file() and is_held(path)]
        assert held == [], "a lock stays"
        for path in self.rlctl.layout.objects.rglob("*.json"):
            json.loads(path.read_text())


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Zombies are not: their new parent may be slow to reap them. One with threads (`l`) still holds its files."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = listed.stdout.strip()
    return bool(state) and (not state.startswith("Z") or "l" in state)
