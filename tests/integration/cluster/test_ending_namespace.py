"""A namespace that is deleted with the operator that serves it, and a run, inside.

No controller deletes anything here: the test deletes the pod and ends the operator, as Kubernetes does first.
"""

import itertools
from collections.abc import Iterator

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace

from rl_operator.api.names import POD_FINALIZER

_numbers = itertools.count(1)


@pytest.fixture
def served(lonely_plane: ControlPlane) -> Iterator[tuple[RunsNamespace, OperatorProcess]]:
    """A namespace, and the operator of it alone, which holds a lease."""
    namespace = f"ending-{next(_numbers)}"
    lonely_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    flags = (*FAST, "--namespace", namespace, "--lease-name", namespace)
    operator = OperatorProcess(lonely_plane.kubeconfig(), *flags)
    try:
        operator.start()
        yield RunsNamespace(lonely_plane, namespace), operator
    finally:
        print(operator.log[-6000:])  # shown with a failure
        operator.close()


@pytest.mark.nightly("operator/src/rl_operator/reconcile")
def test_no_pod_outlives_the_operator_in_a_namespace_that_is_deleted(
    served: tuple[RunsNamespace, OperatorProcess],
) -> None:
    runs, operator = served
    runs.apply()
    pod = runs.until_pod()
    runs.admin.delete(f"/api/v1/namespaces/{runs.namespace}")
    assert operator.stop() == 0
    live = runs.kubelet.pod(pod)
    assert live is None or POD_FINALIZER not in live["metadata"].get("finalizers", ())


def test_a_pod_waits_for_the_next_operator_otherwise(served: tuple[RunsNamespace, OperatorProcess]) -> None:
    runs, operator = served
    runs.apply()
    pod = runs.until_pod()
    assert operator.stop() == 0
    live = runs.kubelet.pod(pod)
    assert live["metadata"]["finalizers"] == [POD_FINALIZER]
    operator.start()
    wait_for("the next operator has the lease", lambda: "working: all is looked at" in operator.log)
    runs.succeed(pod)
