import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


def test_who_only_looks_is_in_nobodys_way(tmp_path: Path) -> None:
    """However many look at once, they see a free lock."""
    lock = FileLock(tmp_path / "lock")
    assert lock.take()
    lock.give_back()
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda _: is_held(tmp_path / "lock"), range(2000)))


def test_a_lock_that_is_looked_at_is_taken(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with (tmp_path / "lock").open("w") as looked_at, ThreadPoolExecutor(1) as pool:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert not is_held(tmp_path / "lock")
        taken = pool.submit(lock.take)
        fcntl.flock(looked_at, fcntl.LOCK_UN)
        assert taken.result(60)
    lock.give_back()


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
