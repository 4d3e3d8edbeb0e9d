import subprocess
import sys
from pathlib import Path

import pytest

from rl_operator.local.state.locks import FileLock, is_held

HOLD = """
import sys
from pathlib import Path
from rl_operator.local.state.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.take(), flush=True)
sys.stdin.read()
"""


def test_a_lock_has_one_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    assert is_held(tmp_path / "lock")
    first.give_back()
    assert not is_held(tmp_path / "lock")
    assert second.take()
    second.give_back()


def test_a_lock_that_was_never_taken_is_free(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


@pytest.mark.process
def test_the_kernel_releases_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert is_held(tmp_path / "lock")
        holder.kill()
        holder.wait()
    assert not is_held(tmp_path / "lock")
