"""The API server accepts what the check accepts and the rendering produces; what is stored there can be read."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient, ApiError
from tests.integration.cluster.control_plane import ControlPlane
from tests.unit.rl_operator.pipeline import children_of, outcome_of
from tests.unit.rl_operator.strategies import (
    ACCEPTABLE_CASES,
    SOUND_ENVIRONMENTS,
    SOUND_RUNS,
    SOUND_RUNTIMES,
    draw,
    mutated,
)

from rl_operator.documents.parse import DocumentError, parse_environment, parse_run, parse_runtime

NAMESPACE = "team-a"
SAMPLE = 200
PATHS = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "RLTrainingRun": RUNS,
    "RLRuntime": RUNTIMES,
    "RLEnvironment": "/apis/rl-operator.dev/v1alpha1/namespaces/{namespace}/rlenvironments",
}


@pytest.fixture(scope="module")
def admin_of_restricted(control_plane: ControlPlane) -> AdminClient:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    return control_plane.admin


def try_out(admin: AdminClient, document: dict[str, Any]) -> dict[str, Any]:
    """What the API server would store. Raises ApiError with its reasons."""
    path = PATHS[document["kind"]].format(namespace=NAMESPACE)
    answer: dict[str, Any] = admin.post(f"{path}?dryRun=All&fieldValidation=Strict", document)
    return answer


def documents_of(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All that an accepted case brings to the API server: its children, and what they come from."""
    rendered = outcome_of(case).rendered
    assert rendered is not None
    yield from children_of(rendered)
    yield case["run"] if case["runtime"] == "tiny" else case["runtime"]
    if case["own"]:
        yield case["own"]


def test_rendered_objects_are_accepted(admin_of_restricted: AdminClient) -> None:
    """Strictly, and with PodSecurity `restricted`. Equal documents are tried once."""
    accepted = [case for case in draw(ACCEPTABLE_CASES, 2 * SAMPLE) if outcome_of(case).accepted][:SAMPLE]
    assert len(accepted) == SAMPLE
    texts = {json.dumps(document, sort_keys=True) for case in accepted for document in documents_of(case)}
    kinds = {try_out(admin_of_restricted, json.loads(text))["kind"] for text in sorted(texts)}
    assert kinds == set(PATHS)


@pytest.mark.parametrize(
    ("parse", "sound"),
    [(parse_run, SOUND_RUNS), (parse_runtime, SOUND_RUNTIMES), (parse_environment, SOUND_ENVIRONMENTS)],
)
def test_stored_objects_can_be_read(admin_of_restricted: AdminClient, parse: Any, sound: Any) -> None:
    """Random documents, valid and broken: the models read whatever the CRDs admit."""
    read = 0
    for document in draw(mutated(sound, most=2), 150):
        try:
            stored = try_out(admin_of_restricted, document)
        except (ApiError, KeyError, TypeError):
            continue
        try:
            parse(stored)
        except DocumentError as error:
            pytest.fail(f"{error}\n{json.dumps(stored['spec'])[:2000]}")
        read += 1
    assert read > 15
