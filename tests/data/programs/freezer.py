"""freezer.py RUN_UID SECONDS: stops the trainer of a run for a while. It sees the processes of the whole node."""

import signal
import sys
import time
from os import kill
from pathlib import Path

run_uid, seconds = sys.argv[1], float(sys.argv[2])


def is_trainer(process: Path) -> bool:
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
        return b"trainer" in command and f"RL_RUN_UID={run_uid}".encode() in (process / "environ").read_bytes()
    except OSError:  # it has ended, or is the kernel's
        return False


(found,) = (int(each.name) for each in Path("/proc").glob("[0-9]*") if is_trainer(each))
kill(found, signal.SIGSTOP)
try:
    time.sleep(seconds)
finally:
    kill(found, signal.SIGCONT)
