"""Bounded waits on the state of other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_for(what: str, look: Callable[[], Value | None], *, seconds: float = 60.0) -> Value:
    """Poll until the answer is truthy; fails with what was waited for and the last observation."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s; last seen: {seen!r}")
        time.sleep(0.03)


def stays(what: str, look: Callable[[], Value], *, seconds: float = 1.0) -> None:
    """Fails as soon as the answer is not truthy within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = look()
        assert seen, f"{what}: no longer so: {seen!r}"
        time.sleep(0.05)
