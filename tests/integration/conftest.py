"""A control plane per session, an operator that serves it, a namespace per test."""

import itertools
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from tests.integration.cluster.control_plane import (
    API_SERVER,
    HOW_TO_GET,
    OLDEST_API_SERVER,
    ControlPlane,
    find_program,
)
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.policies import install_policies
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import ALL_RUNS, RunsNamespace, install_runtime, sweep

_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the operator's log with a failure."""
    report = yield
    operator = item.funcargs.get("operator_process") if isinstance(item, pytest.Function) else None
    if report.failed and isinstance(operator, OperatorProcess):
        report.sections.append(("operator's log", operator.log[-6000:]))
    return report


@pytest.fixture(scope="session")
def control_plane(apiserver: None) -> Iterator[ControlPlane]:
    """Without policies: all refusals are the operator's."""
    with running_control_plane(API_SERVER) as plane:
        install_runtime(plane.admin, "tiny")
        install_runtime(plane.admin, "tiny", "another")  # other tests' runtimes stay: no test may rely on being alone
        yield plane


@pytest.fixture(scope="session")
def _lonely_plane(apiserver: None) -> Iterator[ControlPlane]:
    with running_control_plane(API_SERVER) as plane:
        install_runtime(plane.admin, "tiny")
        yield plane


@pytest.fixture(scope="module")
def lonely_plane(_lonely_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Like `control_plane`, without the operator that other tests share: it would do the work of the tested one.

    One for all test files, which end their operators and find no runs and pods of earlier ones.
    """
    yield _lonely_plane
    wait_for("runs are served, perhaps again", lambda: _lonely_plane.serves(ALL_RUNS))
    sweep(_lonely_plane.admin)


@pytest.fixture(scope="session", params=[API_SERVER, OLDEST_API_SERVER])
def guarded_plane(apiserver: None, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """With policies and without an operator, of the newest and of the oldest version that is supported."""
    with running_control_plane(request.param) as plane:
        install_policies(plane.admin)
        yield plane


@contextmanager
def running_control_plane(api_server: str, *, empty: bool = False) -> Iterator[ControlPlane]:
    """With the CRDs and the operator's rights, or knowing nothing of the project."""
    if not all(find_program(name) for name in ("etcd", api_server)) or not shutil.which("openssl"):
        pytest.skip(HOW_TO_GET if api_server == API_SERVER else f"needs {api_server} beside kube-apiserver")
    plane = ControlPlane(api_server)
    try:
        plane.start_empty() if empty else plane.start()
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


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane) -> Iterator[LogNode]:
    """The source of containers' logs."""
    node = LogNode(*control_plane.serving_pair)
    node.register(control_plane.admin)
    yield node
    node.close()


@pytest.fixture
def runs(control_plane: ControlPlane, operator_process: OperatorProcess) -> RunsNamespace:
    """A namespace of its own, served by the operator."""
    namespace = f"test-{next(_numbers)}"
    control_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return RunsNamespace(control_plane, namespace)
