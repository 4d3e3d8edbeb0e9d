"""Which worker runs which tests.

The tests of one file run on one worker, in order. Files whose tests share a program of the session (an API server with
an operator, a Tinker service, the one real cluster) run on one worker as well: so each of those programs is started
once, whatever the number of workers. The groups that take longest go out first.
"""

from collections.abc import Generator, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

GROUPS = {
    "cluster": "cluster",
    "control_plane": "api server",
    "tinker_service": "tinker service",
    "shared_rlctl": "local runs",
    "local_page": "page of local runs",
    "lonely_plane": "lonely api server",
    "guarded_plane": "guarded api servers",
    "empty_plane": "empty api server",
    "apiserver": "api server",
}
"""What each program of the session is called here, by fixture or marker; the first that a test of a file has counts."""


def group_of(file: Sequence[pytest.Item]) -> str | None:
    used = {name for item in file for name in getattr(item, "fixturenames", ())}
    used |= {mark.name for item in file for mark in item.iter_markers()}
    return next((group for name, group in GROUPS.items() if name in used), None)


def _place(file: Sequence[pytest.Item]) -> int:
    """Shared programs first, in the order of the table; then programs of a file's own; then what needs none."""
    group = group_of(file)
    if group:
        return list(GROUPS.values()).index(group)
    return len(GROUPS) + (not any(item.get_closest_marker("process") for item in file))


@pytest.hookimpl(trylast=True)  # after `-m` has selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = [list(file) for _, file in groupby(items, lambda item: item.path)]
    items[:] = [item for file in sorted(files, key=_place) for item in file]


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, None, None]:
    """A worker tells its controller the names of its tests and nothing else: the group travels behind the name."""
    if not hasattr(session.config, "workerinput"):
        yield
        return
    items, named = session.items, list[Any]()
    for path, group in groupby(items, lambda item: item.path):
        file = list(group)
        scope = group_of(file) or str(path)
        named += [SimpleNamespace(nodeid=f"{item.nodeid}@{scope}") for item in file]
    session.items = named
    try:
        yield
    finally:
        session.items = items


class SharedProgramsScheduling(LoadScopeScheduling):
    """Hands out groups whole."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.rpartition("@")[2]


@pytest.hookimpl(optionalhook=True, tryfirst=True)  # before xdist's own, which answers each --dist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SharedProgramsScheduling:
    return SharedProgramsScheduling(config, log)
