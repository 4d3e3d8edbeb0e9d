"""Processes that are meant to outlive whoever started them."""

import subprocess

_detached: set[subprocess.Popen[bytes]] = set()


def detach(process: subprocess.Popen[bytes]) -> None:
    """Leave it running, with nobody who waits for it. One that ends before we do stays a zombie until the next call."""
    for each in tuple(_detached):
        if each.poll() is not None:
            _detached.discard(each)
    _detached.add(process)
