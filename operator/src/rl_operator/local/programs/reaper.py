"""Kills the containers of a supervisor that vanished.

The supervisor holds the write end of this process's standard input and sends it the process groups that it starts
(`+PGID`) and that end (`-PGID`). When the pipe closes, however the supervisor died, the remaining groups are killed.
Linux could do this with PR_SET_PDEATHSIG, but only for direct children; a pipe works for whole groups and on macOS too.
Standard library only: it is started by path, without the package.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the pipe does, not before
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
