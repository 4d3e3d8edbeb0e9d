"""A server that speaks S3's protocol and is not ours: moto, in a Python of its own."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.ports import free_port

HINT = (
    "needs RL_S3_PYTHON: a Python with moto 5.2.5 "
    "(python3 -m venv V && V/bin/pip install 'moto[s3]==5.2.5' flask flask-cors)"
)
START_SECONDS = 100.0


@contextmanager
def running_s3_server(*buckets: str) -> Iterator[str]:
    """Its URL."""
    python = os.environ.get("RL_S3_PYTHON")
    if not python:
        pytest.skip(HINT)
    url = f"http://127.0.0.1:{free_port()}"
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rpartition(":")[2]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for bucket in buckets:
            _make(f"{url}/{bucket}")
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _make(bucket: str) -> None:
    """As soon as the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(bucket, method="PUT"), timeout=60).close()
        except urllib.error.URLError:
            assert time.monotonic() < deadline, f"{bucket} is not made after {START_SECONDS} s"
            time.sleep(0.1)
        else:
            return
