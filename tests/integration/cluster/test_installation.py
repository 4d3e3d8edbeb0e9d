"""Installing and removing CRDs and policies, in the documented order and in others: no run is ever stuck."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import API_SERVER, OLDEST_API_SERVER, installed_definitions
from tests.integration.cluster.policies import door, install_policies, refusal_of, remove_policies, until_refused
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.conftest import running_control_plane
from tests.refusals import Row, runtimes

nightly = pytest.mark.nightly("charts", "crds")

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATH = RUNS.format(namespace="default")
LOCKED = Row(code="", spec={"config": {"tokenizer_name": "gpt2"}})
WIRED = Row(code="", spec={"config": {"api_key": "x"}})


@pytest.fixture(params=[API_SERVER, pytest.param(OLDEST_API_SERVER, marks=nightly)])
def admin_of_own_plane(apiserver: None, request: pytest.FixtureRequest) -> Iterator[AdminClient]:
    """A separate control plane: CRDs come and go."""
    with running_control_plane(request.param) as plane:
        yield plane.admin


def definition(plural: str) -> dict[str, Any]:
    return next(crd for crd in installed_definitions() if crd["spec"]["names"]["plural"] == plural)


def remove_runtimes_crd(admin: AdminClient) -> None:
    name = definition("rlruntimes")["metadata"]["name"]
    admin.delete(f"{DEFINITIONS}/{name}")
    wait_for("the CRD of runtimes is gone", lambda: admin.find(f"{DEFINITIONS}/{name}") is None)


def install_runtime(admin: AdminClient) -> None:
    lab = next(document for document in runtimes() if document["metadata"]["name"] == "refusals-lab")
    wait_for("runtimes are served", lambda: admin.find(f"{RUNTIMES}?limit=1") is not None)
    wait_for("the runtime is stored", lambda: refusal_of(lambda: admin.post(RUNTIMES, lab)) is None)


def test_policies_are_installed_after_the_crds_and_removed_before_them(admin_of_own_plane: AdminClient) -> None:
    install_runtime(admin_of_own_plane)
    admin_of_own_plane.post(PATH, LOCKED.run("stored"))

    install_policies(admin_of_own_plane)
    until_refused(admin_of_own_plane, "default", LOCKED.run(), "runtime 'refusals-lab' locks it")

    remove_runtimes_crd(admin_of_own_plane)
    path = f"{PATH}/stored"
    for patch in ({"spec": {"suspend": True}}, {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/x"]}}):
        assert refusal_of(lambda patch=patch: admin_of_own_plane.patch(path, patch)) is None
    wait_for(
        "without runtimes the operator alone checks", lambda: door(admin_of_own_plane, "default", LOCKED.run()) is None
    )
    stays("what needs no runtime is refused", lambda: door(admin_of_own_plane, "default", WIRED.run()))
    admin_of_own_plane.delete(path)
    assert refusal_of(lambda: admin_of_own_plane.patch(path, {"metadata": {"finalizers": None}})) is None
    assert admin_of_own_plane.find(path) is None

    admin_of_own_plane.post(DEFINITIONS, definition("rlruntimes"))
    install_runtime(admin_of_own_plane)
    until_refused(admin_of_own_plane, "default", LOCKED.run(), "runtime 'refusals-lab' locks it")

    remove_policies(admin_of_own_plane)
    assert door(admin_of_own_plane, "default", LOCKED.run()) is None
