import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.rl_operator.local.pod_examples import start_holder

from rl_operator.local.programs.leash import Leash, end_left_over
from rl_operator.local.state.locks import FileLock, is_held

pytestmark = pytest.mark.process

HOLDER = """
import subprocess, sys, time
from rl_operator.local.programs.leash import Leash
with Leash() as leash:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    leash.hold(child.pid)
    print(child.pid, flush=True)
    time.sleep(60)
"""


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def test_held_groups_die_with_a_killed_holder() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert _is_running(child)
        holder.kill()
    deadline = time.monotonic() + 10
    while _is_running(child):
        assert time.monotonic() < deadline, "the child outlived its holder by 10 s"
        time.sleep(0.02)


def test_released_groups_live_on() -> None:
    held, released = sleeper(), sleeper()
    with Leash() as leash:
        leash.hold(held.pid)
        leash.hold(released.pid)
        leash.release(released.pid)
    assert held.wait(60) == -signal.SIGKILL
    assert released.poll() is None
    released.kill()
    released.wait()


def test_a_killed_reaper_is_replaced_without_losing_anything() -> None:
    before, after = sleeper(), sleeper()
    with Leash() as leash:
        leash.hold(before.pid)
        leash._reaper.kill()
        leash._reaper.wait()
        leash.hold(after.pid)
    assert (before.wait(60), after.wait(60)) == (-signal.SIGKILL, -signal.SIGKILL)


def _is_running(pid: int) -> bool:
    """Zombies do not run; their new parent may be slow to reap them."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().split()[2] != "Z"


def test_the_lock_holder_is_killed_with_its_group(tmp_path: Path) -> None:
    forks = "import os, time; os.fork(); time.sleep(60)"
    holder = start_holder(tmp_path / "trainer.lock", forks)
    end_left_over(tmp_path / "trainer.lock")
    assert holder.wait(60) == -9
    assert not is_held(tmp_path / "trainer.lock")


def test_a_pid_on_disk_is_never_trusted(tmp_path: Path) -> None:
    """After a reboot a container's PID may belong to any process."""
    bystander = sleeper()
    lock = FileLock(tmp_path / "trainer.lock")
    assert lock.take()
    lock.sign(bystander.pid)
    lock.give_back()
    end_left_over(tmp_path / "trainer.lock")
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_without_a_lock_holder_nothing_is_killed(tmp_path: Path) -> None:
    end_left_over(tmp_path / "never.lock")
    assert not (tmp_path / "never.lock").exists()
