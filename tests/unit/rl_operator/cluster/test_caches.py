from tests.unit.rl_operator.cluster.documents import pod_document, run_document

from rl_operator.api.names import POD_FINALIZER
from rl_operator.cluster.caches import Caches


def test_a_finished_run_keeps_its_identity_and_phase_only() -> None:
    caches = Caches()
    document = run_document(config={"group_size": 8}, status={"phase": "Succeeded", "message": "m", "attempt": 1})
    document["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    caches.runs.put(document)
    run = caches.runs.get(("team-a", "sorting"))
    assert run is not None
    assert (run.metadata.uid, run.status.phase, run.status.finished) == (document["metadata"]["uid"], "Succeeded", True)
    assert (run.metadata.annotations, run.spec.config, run.status.message) == ({}, {}, None)


def test_an_unfinished_run_is_kept_whole() -> None:
    caches = Caches()
    caches.runs.put(run_document(config={"group_size": 8}, status={"phase": "Running", "message": "m"}))
    run = caches.runs.get(("team-a", "sorting"))
    assert run is not None
    assert (run.spec.config, run.status.message) == ({"group_size": 8}, "m")


def test_pods_are_found_by_their_runs_label_with_their_finalizers() -> None:
    caches = Caches()
    caches.pods.put(pod_document(finalizers=["other", POD_FINALIZER]))
    (pod,) = caches.pods.of_run(("team-a", "sorting"))
    assert pod.finalizers == ("other", POD_FINALIZER)
    assert pod.observation.held
