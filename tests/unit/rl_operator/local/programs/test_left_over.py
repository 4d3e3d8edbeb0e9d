"""Processes that outlived their supervisor and reaper."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.rl_operator.local.pod_examples import start_holder

from rl_operator.local.programs.left_over import end_left_over
from rl_operator.local.state.locks import FileLock, is_held


@pytest.mark.process
def test_the_lock_holder_is_killed_with_its_group(tmp_path: Path) -> None:
    forks = "import os, time; os.fork(); time.sleep(60)"
    holder = start_holder(tmp_path / "trainer.lock", forks)
    end_left_over(tmp_path / "trainer.lock")
    assert holder.wait(60) == -9
    assert not is_held(tmp_path / "trainer.lock")


@pytest.mark.process
def test_a_pid_on_disk_is_never_trusted(tmp_path: Path) -> None:
    """After a reboot a container's PID may belong to any process."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
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
