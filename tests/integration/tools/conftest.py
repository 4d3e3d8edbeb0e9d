"""A caller's context for each target, in a separate namespace per test."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.local.conftest import end_everything
from tests.unit.rl_operator.tools.contexts import call_at

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.local.state.layout import Layout
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.local_target import LocalTarget
from rl_operator.targets.target_loop import LoopThread
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import Outcome

Call = Callable[..., Outcome]
"""`call("rl_edit_config", field=…, value=…)`; with `at=` at another context."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster_target(control_plane: ControlPlane, operator_process: OperatorProcess) -> Iterator[ClusterTarget]:
    """With an administrator's rights; the operator has published the catalog."""
    with target_of(control_plane) as target:
        wait_for("the catalog is there", lambda: target.catalog(target.runtimes()["tiny"]))
        yield target


@contextmanager
def target_of(plane: ControlPlane) -> Iterator[ClusterTarget]:
    loop = LoopThread()
    client = loop.wait(ClusterClient.connect(str(plane.kubeconfig(ADMIN_TOKEN))))
    target = ClusterTarget(loop, client, label="cluster:test", flags="", namespace="default", note=print)
    try:
        yield target
    finally:
        target.close()


@pytest.fixture(scope="session")
def local_target(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    """One state folder: all runs that train share its Tinker service."""
    root = tmp_path_factory.mktemp("state")
    yield LocalTarget(Layout(root), " --local", print)
    end_everything(root)


@pytest.fixture
def local_context(local_target: LocalTarget) -> CallContext:
    return CallContext(local_target, f"test-{next(_numbers)}")


@pytest.fixture
def cluster_context(cluster_target: ClusterTarget, runs: RunsNamespace) -> CallContext:
    """`runs` is the same namespace as seen by a user with kubectl and by a kubelet."""
    return CallContext(cluster_target, runs.namespace)


@pytest.fixture(params=["local", pytest.param("cluster", marks=pytest.mark.apiserver)])
def context(process: None, request: pytest.FixtureRequest) -> CallContext:
    found: CallContext = request.getfixturevalue(f"{request.param}_context")
    return found


@pytest.fixture
def call(context: CallContext) -> Call:
    """Calls a tool by its name, like a server."""

    def call_(tool: str, *, at: CallContext | None = None, **arguments: Any) -> Outcome:
        return call_at(at or context, tool, **arguments)

    return call_
