"""A caller's desk in front of each back end, in a namespace of the test's own."""

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

from rl_operator.backends.cluster import ClusterBackEnd
from rl_operator.backends.local import LocalBackEnd
from rl_operator.backends.loop import LoopThread
from rl_operator.cluster.client import ClusterClient
from rl_operator.local.layout import Layout
from rl_operator.tools.desk import Desk
from rl_operator.tools.dispatch import Outcome, dispatch
from rl_operator.tools.toolset import BY_NAME

Call = Callable[..., Outcome]
"""`call("rl_edit_config", field=…, value=…)`; with `at=` at another desk."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster_back_end(control_plane: ControlPlane, operator_process: OperatorProcess) -> Iterator[ClusterBackEnd]:
    """With an administrator's rights; the operator has published which environments there are."""
    with back_end_of(control_plane) as back_end:
        wait_for("the catalog is there", lambda: back_end.catalog(back_end.runtimes()["tiny"]))
        yield back_end


@contextmanager
def back_end_of(plane: ControlPlane) -> Iterator[ClusterBackEnd]:
    loop = LoopThread()
    client = loop.wait(ClusterClient.connect(str(plane.kubeconfig(ADMIN_TOKEN))))
    back_end = ClusterBackEnd(loop, client, label="cluster:test", flags="", namespace="default", note=print)
    try:
        yield back_end
    finally:
        back_end.close()


@pytest.fixture(scope="session")
def local_back_end(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackEnd]:
    """One state folder: all runs that train share its Tinker service."""
    root = tmp_path_factory.mktemp("state")
    yield LocalBackEnd(Layout(root), " --local", print)
    end_everything(root)


@pytest.fixture
def local_desk(local_back_end: LocalBackEnd) -> Desk:
    return Desk(local_back_end, f"test-{next(_numbers)}")


@pytest.fixture
def cluster_desk(cluster_back_end: ClusterBackEnd, runs: RunsNamespace) -> Desk:
    """`runs` is the same namespace as a person with kubectl and a kubelet see it."""
    return Desk(cluster_back_end, runs.namespace)


@pytest.fixture(params=["local", pytest.param("cluster", marks=pytest.mark.apiserver)])
def desk(process: None, request: pytest.FixtureRequest) -> Desk:
    found: Desk = request.getfixturevalue(f"{request.param}_desk")
    return found


@pytest.fixture
def call(desk: Desk) -> Call:
    """Calls a tool by its name, as a door does."""

    def call_(tool: str, *, at: Desk | None = None, **arguments: Any) -> Outcome:
        return dispatch(BY_NAME[tool], at or desk, arguments)

    return call_
