"""Every process below this one is found and ended."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import os, subprocess
from tinker_atropos.check.descendants import adopt_orphans, descendants, end_descendants

adopt_orphans()
subprocess.run(["/bin/sh", "-c", "setsid sleep 600 & exit"])
ignoring = "trap '' TERM; echo ready; while :; do sleep 1; done"
stubborn = subprocess.Popen(["/bin/sh", "-c", ignoring], stdout=subprocess.PIPE)
stubborn.stdout.readline()
pids = descendants()
end_descendants()
print(len(pids) >= 2, descendants())
for pid in pids:
    try:
        os.kill(pid, 0)
        print(pid, "is left")
    except ProcessLookupError:
        pass
"""


def test_orphans_and_what_ignores_signals_are_ended() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "True []\n"), ended.stderr
