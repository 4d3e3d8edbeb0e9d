"""All tests here need a control plane; some of them play whole runs on it."""

from collections.abc import Iterator, Mapping

import pytest
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.cluster.kubectl import Kubectl
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.rlctl_calls import Call, rlctl_in
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.cluster.theatre import Theatre, Undisturbed, open_theatre
from tests.integration.cluster.written_environments import OwnEnvironments


@pytest.fixture(scope="module")
def theatre(lonely_plane: ControlPlane) -> Iterator[Theatre]:
    with open_theatre(lonely_plane) as theatre:
        yield theatre


@pytest.fixture(scope="session")
def told() -> dict[str, Undisturbed]:
    """What undisturbed lives were like, once they have been played."""
    return {}


@pytest.fixture(scope="module")
def undisturbed(theatre: Theatre, told: dict[str, Undisturbed]) -> Mapping[str, Undisturbed]:
    if not told:
        told.update(theatre.undisturbed())
    return told


@pytest.fixture
def operator(operator_process: OperatorProcess) -> Iterator[OperatorProcess]:
    """The session's operator, for a test that kills it."""
    yield operator_process
    if not operator_process.alive:
        operator_process.start()


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if not Kubectl.there():
        pytest.skip("needs kubectl on PATH or in KUBEBUILDER_ASSETS")
    return Kubectl(control_plane.kubeconfig(ADMIN_TOKEN), tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def rlctl(control_plane: ControlPlane, runs: RunsNamespace) -> Call:
    return rlctl_in(control_plane, runs.namespace)


@pytest.fixture
def own(runs: RunsNamespace) -> OwnEnvironments:
    return OwnEnvironments(runs.admin, runs.namespace)
