"""The end of an environment that does not end by itself, in a process of its own."""

import os
import textwrap
from pathlib import Path

import pytest
from tests import forking

pytestmark = pytest.mark.process

WORKING = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tinker_atropos.environments.runner.run_end import exit_within

def work(kind):
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"worker-{os.getpid()}").touch()
    if kind == "finishes":
        while not Path("let go").exists():
            time.sleep(0.01)
        Path("finished").touch()
    else:
        time.sleep(600)

kind = sys.argv[1]
pool = ProcessPoolExecutor(2)
futures = [pool.submit(work, kind) for _ in range(2)]
while len(list(Path().glob("worker-*"))) < 2:
    time.sleep(0.01)
"""


def ended(folder: Path, kind: str, code: str) -> int:
    """The exit code, when neither the process nor a worker is left."""
    done = forking.run([kind], os.environ, folder, code=WORKING + textwrap.dedent(code))
    workers = [int(path.name.removeprefix("worker-")) for path in folder.glob("worker-*")]
    assert len(workers) == 2, done.stderr
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return done.returncode


@pytest.mark.parametrize("kind", ["hangs", "stubborn"])
def test_processes_that_do_not_finish_end_with_the_environment(tmp_path: Path, kind: str) -> None:
    code = """
    exit_within(0.1, 7, "it did not stop", worker_seconds=0.1)
    time.sleep(600)
    """
    assert ended(tmp_path, kind, code) == 7


def test_processes_are_given_time_to_finish(tmp_path: Path) -> None:
    """The main program ends at once, and the interpreter then waits for what its pools are at."""
    code = """
    import threading
    from tinker_atropos.environments.runner import run_end
    run_end.OBEY_SECONDS = 60  # the machine may be busy
    def let_go():
        time.sleep(0.5)  # until the deadline of the process itself has passed
        Path("let go").touch()
    threading.Thread(target=let_go, daemon=True).start()
    exit_within(0.1, 7, "it did not stop", worker_seconds=60)
    """
    assert ended(tmp_path, "finishes", code) == 0
    assert (tmp_path / "finished").exists()
