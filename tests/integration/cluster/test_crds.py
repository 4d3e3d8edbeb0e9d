"""What the API server makes of the CRDs: defaults, refusals and the freeze. No operator takes part."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient, ApiError
from tests.integration.cluster.control_plane import ControlPlane

from rl_operator.documents.parse import load_documents, parse_run
from rl_operator.documents.shipped import bundled_runtime_text

NAMESPACE = "crds"
PATH = RUNS.format(namespace=NAMESPACE)

_numbers = itertools.count(1)


def run_body(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name},
        "spec": {"environment": "sort_digits", **spec},
    }


@pytest.fixture(scope="module")
def admin_of_kinds(guarded_plane: ControlPlane) -> AdminClient:
    guarded_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return guarded_plane.admin


@pytest.fixture
def draft(admin_of_kinds: AdminClient) -> str:
    """The name of a run that is stored and not started."""
    name = f"draft-{next(_numbers)}"
    admin_of_kinds.post(PATH, run_body(name, suspend=True, wandb={"project": "rl"}, config={"group_size": 8}))
    return name


@pytest.fixture
def started(admin_of_kinds: AdminClient, draft: str) -> str:
    admin_of_kinds.patch(f"{PATH}/{draft}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}})
    return draft


def try_out(admin: AdminClient, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = admin.post(f"{PATH}?dryRun=All&fieldValidation=Strict", body)
    return answer


def try_edit(admin: AdminClient, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = admin.patch(f"{PATH}/{name}?dryRun=All&fieldValidation=Strict", {"spec": spec})
    return answer


def test_defaults(admin_of_kinds: AdminClient) -> None:
    answer = try_out(admin_of_kinds, run_body("sorting"))
    assert answer["spec"] == {
        "environment": "sort_digits",
        "runtime": "default",
        "backoffLimit": 3,
        "startDeadlineSeconds": 1800,
        "progressDeadlineSeconds": 3600,
        "environmentReplicas": 1,
        "onLostCheckpoint": "Fail",
    }
    assert answer["status"] == {"observedGeneration": -1}


@pytest.mark.parametrize("field", ["startDeadlineSeconds", "progressDeadlineSeconds", "activeDeadlineSeconds"])
def test_null_means_no_deadline_here_as_in_a_file(admin_of_kinds: AdminClient, field: str) -> None:
    body = run_body("sorting", **{field: None})
    stored = try_out(admin_of_kinds, body)
    assert stored["spec"].get(field) is None
    assert parse_run(stored).spec == parse_run(body).spec


def test_free_form_maps_keep_everything(admin_of_kinds: AdminClient) -> None:
    config = {"a": {"b": [1, None, {"c": "4e-5"}]}, "d": None, "e": 4e-5, "f": 2}
    assert try_out(admin_of_kinds, run_body("sorting", config=config, trainer=config))["spec"]["config"] == config


@pytest.mark.parametrize("file", sorted(Path("examples").glob("sorting*.yaml")), ids=str)
def test_examples_are_accepted(admin_of_kinds: AdminClient, file: Path) -> None:
    [document] = load_documents(file.read_text())
    assert parse_run(try_out(admin_of_kinds, document)).spec == parse_run(document).spec


@pytest.mark.parametrize("name", ["a" * 52, "a", "a-1"])
def test_accepted_names(admin_of_kinds: AdminClient, name: str) -> None:
    assert try_out(admin_of_kinds, run_body(name))["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("name", "spec", "complaint"),
    [
        ("a" * 53, {}, "at most 52 characters"),
        ("1a", {}, "must begin with a letter"),
        ("a.b", {}, "must begin with a letter"),
        ("a", {"startFrom": {}}, "exactly one of run and checkpoint"),
        ("a", {"startFrom": {"run": "b", "checkpoint": "tinker://b"}}, "exactly one of run and checkpoint"),
        ("a", {"startFrom": {"checkpoint": "/tmp/b"}}, "spec.startFrom.checkpoint"),
        ("a", {"environment": ""}, "spec.environment"),
        ("a", {"environment": None}, "spec.environment: Required value"),
        ("a", {"runtime": ""}, "spec.runtime"),
        ("a", {"config": [1]}, "spec.config"),
        ("a", {"backoffLimit": "3"}, "spec.backoffLimit"),
        ("a", {"backoffLimit": -1}, "spec.backoffLimit"),
        ("a", {"backoffLimit": 1.5}, "spec.backoffLimit"),
        ("a", {"startDeadlineSeconds": 0}, "spec.startDeadlineSeconds"),
        ("a", {"activeDeadlineSeconds": 2**31}, "spec.activeDeadlineSeconds"),
        ("a", {"environmentReplicas": 0}, "spec.environmentReplicas"),
        ("a", {"budget": 20}, "spec.budget"),
        ("a", {"budget": {"amount": 20}}, "spec.budget.currency: Required value"),
        ("a", {"budget": {"amount": 0, "currency": "USD"}}, "amount must be at least 0.01"),
        ("a", {"budget": {"amount": 20, "currency": "usd"}}, "spec.budget.currency"),
        ("a", {"suspend": "yes"}, "spec.suspend"),
        ("a", {"onLostCheckpoint": "restart"}, 'supported values: "Fail", "Restart"'),
        ("a", {"wandb": {"tags": ["x", "x"]}}, "spec.wandb.tags[1]: Duplicate value"),
        ("a", {"wandb": {"tags": ["x,y"]}}, "spec.wandb.tags[0]"),
        ("a", {"priority": 1001}, "spec.priority"),
        ("a", {"priority": -1001}, "spec.priority"),
        ("a", {"wandb": {"projekt": "x"}}, 'unknown field "spec.wandb.projekt"'),
        ("a", {"environmnt": "x"}, 'unknown field "spec.environmnt"'),
    ],
)
def test_refused(admin_of_kinds: AdminClient, name: str, spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ApiError) as caught:
        try_out(admin_of_kinds, run_body(name, **spec))
    assert caught.value.code in (400, 422)
    assert complaint in caught.value.message


FROZEN: dict[str, Any] = {
    "environment": "other",
    "runtime": "other",
    "backoffLimit": 4,
    "wandb": {"project": "other"},
    "startFrom": {"run": "other"},
}
FREE: dict[str, Any] = {
    "suspend": False,
    "startDeadlineSeconds": 5,
    "progressDeadlineSeconds": 5,
    "activeDeadlineSeconds": 5,
    "ttlSecondsAfterFinished": 5,
    "priority": 5,
    "environmentReplicas": 2,
}


@pytest.mark.parametrize("field", FROZEN | FREE)
def test_every_field_of_a_draft_may_be_edited(admin_of_kinds: AdminClient, draft: str, field: str) -> None:
    assert try_edit(admin_of_kinds, draft, {field: (FROZEN | FREE)[field]})["metadata"]["generation"] == 2


@pytest.mark.parametrize("field", FROZEN)
def test_frozen_after_the_start(admin_of_kinds: AdminClient, started: str, field: str) -> None:
    with pytest.raises(ApiError, match=rf"spec\.{field}: it is frozen since the run started: make a new run"):
        try_edit(admin_of_kinds, started, {field: FROZEN[field]})


def test_removing_a_frozen_field_is_a_change(admin_of_kinds: AdminClient, started: str) -> None:
    with pytest.raises(ApiError, match=r"spec\.wandb: it is frozen"):
        try_edit(admin_of_kinds, started, {"wandb": None})


@pytest.mark.parametrize("field", FREE)
def test_still_editable_after_the_start(admin_of_kinds: AdminClient, started: str, field: str) -> None:
    assert try_edit(admin_of_kinds, started, {field: FREE[field]})["spec"].get(field) == FREE[field]


def test_labels_and_finalizers_stay_editable(admin_of_kinds: AdminClient, started: str) -> None:
    metadata = {"labels": {"a": "b"}, "finalizers": ["example.com/x"]}
    answer = admin_of_kinds.patch(f"{PATH}/{started}?dryRun=All", {"metadata": metadata})
    assert answer["metadata"]["finalizers"] == ["example.com/x"]


@pytest.mark.parametrize("start_time", [None, "2026-01-02T00:00:00Z"])
def test_the_start_time_stays(admin_of_kinds: AdminClient, started: str, start_time: str | None) -> None:
    with pytest.raises(ApiError, match=r"status\.startTime is set once and stays"):
        admin_of_kinds.patch(f"{PATH}/{started}/status?dryRun=All", {"status": {"startTime": start_time}})


def condition(type_: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def test_conditions_are_identified_by_type(admin_of_kinds: AdminClient, draft: str) -> None:
    conditions = [condition("Ready"), condition("Ready")]
    with pytest.raises(ApiError, match="Duplicate value"):
        admin_of_kinds.patch(f"{PATH}/{draft}/status?dryRun=All", {"status": {"conditions": conditions}})


def test_a_refusal_may_hold_any_value(admin_of_kinds: AdminClient, draft: str) -> None:
    refusal = {"code": "WrongType", "field": "spec.config.a", "given": {"b": [1]}, "allowed": ["x", 1], "hint": "h"}
    answer = admin_of_kinds.patch(f"{PATH}/{draft}/status?dryRun=All", {"status": {"refusals": [refusal]}})
    assert answer["status"]["refusals"] == [refusal]


def test_runs_can_be_selected_by_phase(admin_of_kinds: AdminClient, draft: str) -> None:
    admin_of_kinds.patch(f"{PATH}/{draft}/status", {"status": {"phase": "Succeeded"}})
    chosen = admin_of_kinds.items(PATH, fieldSelector="status.phase=Succeeded,spec.runtime=default")
    assert [run["metadata"]["name"] for run in chosen] == [draft]


def runtime_body(text: str, change: Callable[[dict[str, Any]], object] = lambda _spec: None) -> dict[str, Any]:
    [document] = load_documents(text)
    document["metadata"]["name"] = f"crds-{next(_numbers)}"
    change(document["spec"])
    return document


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_the_shipped_runtimes_are_accepted_unchanged(admin_of_kinds: AdminClient, name: str) -> None:
    document = runtime_body(bundled_runtime_text(name))
    answer = admin_of_kinds.post(f"{RUNTIMES}?dryRun=All&fieldValidation=Strict", document)
    assert answer["spec"] == document["spec"]
    assert answer["status"] == {"observedGeneration": -1}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda spec: spec.pop("image"), "spec.image: Required value"),
        (lambda spec: spec.update(resources={"api": {"requests": {"cpu": 0.5}}}), "spec.resources.api.requests.cpu"),
        (lambda spec: spec.update(bounds={"env": {"x": {"max": "9"}}}), "spec.bounds.env.x.max"),
        (lambda spec: spec.update(imagePullPolicy="Sometimes"), "spec.imagePullPolicy"),
        (lambda spec: spec.update(environmentImage=""), "spec.environmentImage"),
        (lambda spec: spec.update(rollouts={}), "name exactly one of persistentVolumeClaim and objectStore"),
        (
            lambda spec: spec.update(
                rollouts={"persistentVolumeClaim": {"claimName": "a"}, "objectStore": {"url": "s3://lab"}}
            ),
            "name exactly one of persistentVolumeClaim and objectStore",
        ),
        (
            lambda spec: spec.update(rollouts={"persistentVolumeClaim": {"claimName": "A_b"}}),
            "spec.rollouts.persistentVolumeClaim.claimName",
        ),
        *(
            (lambda spec, url=url: spec.update(rollouts={"objectStore": {"url": url}}), "spec.rollouts.objectStore.url")
            for url in ("gs://rl", "s3://Bucket", "s3://key:secret@lab", "s3://lab/../x", "s3://lab//x", "s3://lab/a?b")
        ),
        *(
            (
                lambda spec, endpoint=endpoint: spec.update(
                    rollouts={"objectStore": {"url": "s3://lab", "endpoint": endpoint}}
                ),
                "spec.rollouts.objectStore.endpoint",
            )
            for endpoint in ("minio:9000", "https://key:secret@minio", "https://minio/path", "https://")
        ),
        *(
            (
                lambda spec, authority=authority: spec.update(
                    rollouts={"objectStore": {"url": "s3://lab", "certificateAuthority": authority}}
                ),
                complaint,
            )
            for authority, complaint in (
                ({}, "name exactly one of configMap and secret"),
                ({"configMap": {"name": "a"}, "secret": {"name": "a"}}, "name exactly one of configMap and secret"),
                ({"configMap": {"name": "a", "key": "../b"}}, "certificateAuthority.configMap.key"),
            )
        ),
        (
            lambda spec: spec.update(bounds={"env": {"taskset": {"size": {"max": 9}}}}),
            'unknown field "spec.bounds.env.taskset.size"',
        ),
        (lambda spec: spec.update(tolerations=[{"effect": "No"}]), "spec.tolerations[0].effect"),
        (lambda spec: spec.update(backend={"keySecret": {"name": "x"}}), "spec.backend.keySecret.key"),
        (lambda spec: spec.update(bounds={"env": {"x": {"min": 2, "max": 1}}}), "no value is at least min and at most"),
        (lambda spec: spec.update(bounds={"trainer": {"base_url": {"min": 2}}}), "set by the operator: leave them out"),
        (lambda spec: spec.update(environmentEgress=[{"cidr": "example.com"}]), "cidr must be a range like"),
        (lambda spec: spec.update(secretEnvironment=[{"name": "s", "key": "k"}] * 2), "Duplicate value"),
        (
            lambda spec: spec.update(secretEnvironment=[{"name": "s", "key": "WANDB_API_KEY"}]),
            "TINKER_API_KEY and WANDB_API_KEY are the trainer's and never go to an environment",
        ),
        *(
            (
                lambda spec, key=key: spec.update(secretEnvironment=[{"name": "s", "key": key}]),
                "PATH, HOME, RL_*, LD_* and PYTHON* are set by the operator",
            )
            for key in ("PATH", "HOME", "RL_API_URL", "LD_PRELOAD", "PYTHONPATH")
        ),
        (
            lambda spec: spec.update(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "In and NotIn take at least one value",
        ),
    ],
)
def test_refused_runtimes(admin_of_kinds: AdminClient, change: Callable[[Any], object], complaint: str) -> None:
    with pytest.raises(ApiError) as caught:
        admin_of_kinds.post(
            f"{RUNTIMES}?dryRun=All&fieldValidation=Strict", runtime_body(bundled_runtime_text("tiny"), change)
        )
    assert complaint in caught.value.message


def test_a_runtime_may_speak_of_fields_inside_of_a_mapping(admin_of_kinds: AdminClient) -> None:
    """Values are nested, as in a run; a range goes by the field's name."""
    spoken = {
        "environmentImage": "environment-verifiers:dev",
        "locked": {"env": {"taskset": {"level": "hard"}}},
        "bounds": {"env": {"taskset.size": {"max": 9}}},
    }
    document = runtime_body(bundled_runtime_text("tiny"), lambda spec: spec.update(spoken))
    answer = admin_of_kinds.post(f"{RUNTIMES}?dryRun=All&fieldValidation=Strict", document)
    assert {name: answer["spec"][name] for name in spoken} == spoken


def test_a_runtimes_name_becomes_a_label(admin_of_kinds: AdminClient) -> None:
    document = runtime_body(bundled_runtime_text("tiny"))
    document["metadata"]["name"] = "a" * 63
    admin_of_kinds.post(f"{RUNTIMES}?dryRun=All", document)
    document["metadata"]["name"] = "a" * 64
    with pytest.raises(ApiError, match="at most 63 characters"):
        admin_of_kinds.post(f"{RUNTIMES}?dryRun=All", document)
