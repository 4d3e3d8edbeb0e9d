"""The tests' fork server: its children are like new processes, and none outlives pytest."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forking
from tests.forking import ForkedProcess

pytestmark = pytest.mark.process

SHOW = """
import json, multiprocessing, os, random, signal, sys
import numpy
print(json.dumps({
    "argv": sys.argv[1:], "folder": os.getcwd(), "variables": dict(os.environ), "stdin": sys.stdin.read(),
    "name": __name__, "main": sys.modules["__main__"].__dict__ is globals(),
    "process": multiprocessing.current_process().name, "parent": multiprocessing.parent_process(),
    "handlers": [str(signal.getsignal(number)) for number in signal.valid_signals()],
    "blocked": [number for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "umask": os.umask(0), "group": os.getpgid(0), "niceness": os.nice(0), "buffered": sys.stdout.line_buffering,
    "writes bytecode": not sys.dont_write_bytecode, "threads": len(os.listdir("/proc/self/task")),
    "absent": [name for name in ("atroposlib", "torch", "wandb") if name in sys.modules],
}))
"""
RANDOM = "import random, numpy; print(random.random(), numpy.random.rand())"
VARIABLES = {"PATH": os.environ["PATH"], "ONLY": "this"}


def test_a_child_is_like_a_new_process(tmp_path: Path) -> None:
    forked = forking.run(["a", "b"], VARIABLES, tmp_path, code=SHOW, stdin="given")
    started = subprocess.run(
        [sys.executable, "-c", SHOW, "a", "b"],
        env={**VARIABLES, "OPENBLAS_NUM_THREADS": "1"},
        cwd=tmp_path, input="given", capture_output=True, text=True, check=True,
    )  # fmt: skip
    new = json.loads(started.stdout)
    del new["variables"]["OPENBLAS_NUM_THREADS"]
    locale = new["variables"].pop("LC_CTYPE", None)  # which a new Python sets itself if it is missing
    assert locale in (None, "C.UTF-8")
    assert json.loads(forked.stdout) == new, forked.stderr


def test_two_children_draw_different_random_numbers() -> None:
    first, second = (forking.run(["x"], VARIABLES, code=RANDOM).stdout.split() for _ in range(2))
    assert not set(first) & set(second)


THREAD = """
import atexit, sys, threading
atexit.register(print, "last", file=sys.stderr)
ready = threading.Event()
threading.Thread(target=lambda: ready.wait() and print("thread", file=sys.stderr)).start()
threading.Timer(0.1, ready.set).start()
"""

ENDS = {
    "the end": ("", 0, ""),
    "sys.exit": ("import sys; sys.exit(3)", 3, ""),
    "sys.exit with a text": ("import sys; sys.exit('why')", 1, "why"),
    "an error": ("1 / 0", 1, "ZeroDivisionError: division by zero"),
    "a signal": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
    "threads and atexit": (THREAD, 0, "thread\nlast"),
    "a native line": ("import os; os.system('echo from the shell >&2')", 0, "from the shell"),
}


@pytest.mark.parametrize(("code", "returncode", "said"), ENDS.values(), ids=ENDS)
def test_a_child_ends_like_the_interpreter(code: str, returncode: int, said: str) -> None:
    ended = forking.run(["x"], VARIABLES, code=code)
    assert ended.returncode == returncode
    assert ended.stderr.rstrip("\n").endswith(said), ended.stderr


async def test_a_signal_reaches_the_process_and_is_its_return_code(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = ForkedProcess(["x"], VARIABLES, (0, log.fileno(), log.fileno()), code="import time; time.sleep(600)")
    assert process.returncode is None
    process.kill()
    assert await process.wait() == process.returncode == -signal.SIGKILL
    process.kill()  # like subprocess: only this process gets the signal


LOADED = "import transformers, sys; assert len(sys.modules) > 1000"


@pytest.mark.parametrize(
    ("code", "preloaded"), [(LOADED, forking.PRELOADED), (forking.SERVICE, forking.PRELOADED_TORCH)]
)
def test_a_server_has_one_thread(code: str, preloaded: str) -> None:
    """A lock that another thread held would stay locked in every child."""
    assert forking.run(["--help"], VARIABLES, code=code).returncode == 0
    assert len(list(Path(f"/proc/{forking.server_pid(preloaded)}/task").iterdir())) == 1


def test_rlctl_is_forked_like_its_script() -> None:
    ended = forking.run(["get", "-h"], VARIABLES, code=forking.RLCTL)
    assert ended.returncode == 0, ended
    assert "Usage: rlctl get" in ended.stdout
    assert len(list(Path(f"/proc/{forking.server_pid(forking.PRELOADED_RLCTL)}/task").iterdir())) == 1


def test_a_variable_read_at_import_is_refused() -> None:
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is read before a fork would have it: this needs a real start"):
        forking.run(["x"], {"HF_HUB_OFFLINE": "a test's"}, code="")


ORPHAN = """
import os, sys
from tests.forking import ForkedPopen
child = ForkedPopen(["x"], {}, (0, 1, 2), code="print('runs', flush=True); import time; time.sleep(600)")
os.kill(os.getpid(), 9)
"""


def test_a_child_dies_with_pytest() -> None:
    """The server and its child hold the output's pipe, which is read to the end."""
    killed = subprocess.run(
        [sys.executable, "-c", ORPHAN],
        cwd=forking.ROOT, stdout=subprocess.PIPE, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout in ("", "runs\n"), "it ended when nobody could write to it any more"
