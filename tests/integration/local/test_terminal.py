"""rlctl on a terminal: a live panel, and what Ctrl-C means."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from tests.integration.local.conftest import RLCTL, Rlctl
from tests.integration.local.scripted import RUN_FILE, WORKS_ON, start_scripted

CTRL_C = b"\x03"


ON_THE_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Takes the terminal, so that Ctrl-C reaches the program, also when these tests run in the background of a shell, which
ignores it. A program and no `preexec_fn`: Python 3.12 and later warn of code between fork and exec beside threads.
"""


class Terminal:
    """A process on a terminal of 100 columns."""

    def __init__(self, rlctl: Rlctl, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_THE_TERMINAL, str(RLCTL), *arguments],
            env={**rlctl.env_vars, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""
        self.screen = pyte.Screen(100, 30)
        self._stream = pyte.ByteStream(self.screen)

    def until(self, text: str) -> None:
        """Read until the text was printed (escape sequences left out)."""
        deadline = time.monotonic() + 60
        while text not in self._seen:
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"waited 60 s for {text!r}; the terminal showed:\n{self._seen}"
            if select.select([self._ours], [], [], min(remaining, 1))[0]:
                try:
                    chunk = os.read(self._ours, 65536)
                except OSError:  # on Linux, when the other end is closed
                    chunk = b""
                assert chunk, f"it ended without {text!r}; the terminal showed:\n{self._seen}"
                self._stream.feed(chunk)
                self._seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", chunk.decode(errors="replace"))

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(rlctl: Rlctl, tmp_path: Path) -> Iterator[Terminal]:
    """`rlctl run` attached to a working run."""
    start_scripted(rlctl.store, "run", trainer=WORKS_ON)
    file = tmp_path / "run.yaml"
    file.write_text(RUN_FILE)
    attached = Terminal(rlctl, "run", str(file), "--local")
    attached.until("Running")
    yield attached
    attached.close()


def test_ctrl_c_asks_and_stops_with_a_checkpoint(terminal: Terminal, rlctl: Rlctl) -> None:
    terminal.type(CTRL_C)
    terminal.until("Stop the run, or detach from it?")
    terminal.type(b"stop\r")
    terminal.until("Stopped with a checkpoint of step 3")
    assert terminal.process.wait(60) == 0
    assert rlctl.status("run")["phase"] == "Stopped"


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(b"\r", id="Enter"),
        pytest.param(CTRL_C, id="a second Ctrl-C", marks=pytest.mark.nightly("operator/src/rl_operator/cli")),
    ],
)
def test_ctrl_c_asks_and_detaches(terminal: Terminal, rlctl: Rlctl, keys: bytes) -> None:
    terminal.type(CTRL_C)
    terminal.until("Stop the run, or detach from it?")
    terminal.type(keys)
    terminal.until("run continues")
    assert terminal.process.wait(60) == 0
    assert rlctl.status("run")["phase"] == "Running"
    assert rlctl.supervisor("run") is not None


def test_keys_move_nothing_and_are_echoed_again_afterward(terminal: Terminal) -> None:
    terminal.until("3/3")
    assert not terminal.echoes
    terminal.type(b"\r\rx\r")
    terminal.type(CTRL_C)
    terminal.until("Stop the run, or detach from it?")
    assert terminal.echoes
    terminal.type(b"stop\r")
    terminal.until("Stopped with a checkpoint of step 3")
    assert terminal.process.wait(60) == 0
    rows = [row.rstrip() for row in terminal.screen.display]
    assert sum(row.startswith("step ") for row in rows) == 2, "the panel of this call, and the one while it stops"
