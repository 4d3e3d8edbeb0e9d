"""Which tests start programs: the fixtures that start them say so, and a test that starts one undeclared fails.

A fixture that starts a program requests one of the three fixtures below, and every test that uses it gets the marker of
that name. So `-m "not process"` selects the tests that stay inside pytest's own process, and means it: an audit hook
refuses all others the start of a program.
"""

import os
import platform
import sys
from collections.abc import Generator
from typing import Any

import pytest
from tests import forking

RERUNS = int(os.environ.get("RL_RERUNS", "1"))
"""A test that waits for a process or a cluster may be run a second time; tests/plugins/summary.py names those. In
`make nightly` it is none: what needs it is a defect, and fails there.
"""

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", forking.STARTED})
"""Audit events (https://docs.python.org/3/library/audit_events.html) of programs that are started. Those that
multiprocessing starts have none.
"""


@pytest.fixture(scope="session")
def process() -> None:
    """Requested by whatever starts a program."""


@pytest.fixture(scope="session")
def apiserver(process: None) -> None:
    """Requested by whatever starts etcd and kube-apiserver, or needs them."""


@pytest.fixture(scope="session")
def cluster(process: None) -> None:
    """Requested by whatever needs a real cluster with the images loaded."""


MARKERS = ("process", "apiserver", "cluster")


class UndeclaredStartError(RuntimeError):
    """A test without the marker `process` starts a program."""


class Guard:
    """Refuses to start programs on behalf of tests that have not declared it."""

    def __init__(self) -> None:
        self.undeclared: str | None = None
        """The test that is running and may not start programs."""
        self.refused: list[str] = []

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.undeclared is None or event not in STARTS:
            return
        sentence = (
            f"{self.undeclared} starts a program ({event} {arguments[:2]!r:.200}): let its fixture request `process`, "
            "or mark the test with pytest.mark.process"
        )
        self.refused.append(sentence)
        raise UndeclaredStartError(sentence)


_guard = Guard()


def pytest_configure() -> None:
    platform.processor()  # starts `uname`, once in each process: here, not in the first test with an OpenAI client
    sys.addaudithook(_guard.audit)  # for the lifetime of this process: hooks cannot be removed


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        requested = getattr(item, "fixturenames", ())
        declared = {name for name in MARKERS if name in requested or item.get_closest_marker(name)}
        if declared:
            declared.add("process")
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))
        for name in declared:
            item.add_marker(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    yield from _guarded(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield from _guarded(item)


def _guarded(item: pytest.Item) -> Generator[None, None, None]:
    """Fails the test also where the code under test swallows the refusal."""
    _guard.undeclared = None if item.get_closest_marker("process") else item.nodeid
    _guard.refused.clear()
    try:
        yield
    finally:
        _guard.undeclared = None
    if _guard.refused:
        raise UndeclaredStartError(_guard.refused[0])
