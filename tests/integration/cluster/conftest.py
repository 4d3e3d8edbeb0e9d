"""A control plane per session, an operator that serves it, a namespace per test."""

import itertools
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.integration.cluster.control_plane import HOW_TO_GET, ControlPlane, find_program
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.runs import RunsNamespace, install_runtime

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.integration)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the operator said beside what failed."""
    report = yield
    operator = item.funcargs.get("operator_process")
    if report.failed and operator:
        report.sections.append(("operator's log", operator.log[-6000:]))
    return report


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    if not all(find_program(name) for name in ("etcd", "kube-apiserver")) or not shutil.which("openssl"):
        pytest.skip(HOW_TO_GET)
    plane = ControlPlane()
    try:
        plane.start()
        install_runtime(plane.admin, "tiny")
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def operator_process(control_plane: ControlPlane) -> Iterator[OperatorProcess]:
    process = OperatorProcess(control_plane.kubeconfig(), *FAST)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def runs(control_plane: ControlPlane, operator_process: OperatorProcess) -> RunsNamespace:
    """A namespace of its own, served by the operator."""
    namespace = f"test-{next(_numbers)}"
    control_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return RunsNamespace(control_plane, namespace)
