"""Processes that are meant to outlive the program that started them."""

import subprocess

_detached: set[subprocess.Popen[bytes]] = set()


def detach(process: subprocess.Popen[bytes]) -> None:
    """Leave it running without waiting for it. If it ends before we do, it stays a zombie until the next call."""
    for each in tuple(_detached):
        if each.poll() is not None:
            _detached.discard(each)
    _detached.add(process)
