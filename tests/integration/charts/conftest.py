"""helm, and an API server that knows nothing of the project yet."""

from collections.abc import Iterator

import pytest
from tests.integration.charts.helm import HOW_TO_GET, Helm
from tests.integration.cluster.control_plane import ADMIN_TOKEN, API_SERVER, ControlPlane
from tests.integration.conftest import running_control_plane


@pytest.fixture(scope="session")
def rendering_helm(process: None, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """One that renders, and reaches no cluster."""
    if not Helm.there():
        pytest.skip(HOW_TO_GET)
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def empty_plane(apiserver: None, rendering_helm: Helm) -> Iterator[ControlPlane]:
    """Two namespaces with PodSecurity's strictest level, and nothing else: tests leave it as they found it."""
    with running_control_plane(API_SERVER, empty=True) as plane:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        for name in ("ops", "team"):
            plane.admin.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        yield plane


@pytest.fixture(scope="session")
def admins_helm(empty_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), str(empty_plane.kubeconfig(ADMIN_TOKEN)))
