"""Installs and removes the admission policies as a user does with crds/validating-admission-policies.yaml."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from tests.integration.cluster.admin import RUNS, AdminClient, ApiError
from tests.integration.cluster.control_plane import ROOT
from tests.integration.cluster.polling import wait_for

_GROUP = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ValidatingAdmissionPolicy": f"{_GROUP}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_GROUP}/validatingadmissionpolicybindings",
}
_PROBE = {
    "apiVersion": "rl-operator.dev/v1alpha1",
    "kind": "RLTrainingRun",
    "metadata": {"name": "probe"},
    "spec": {"environment": "probe", "config": {"api_key": "probe"}},
}


def policy_documents() -> list[dict[str, Any]]:
    text = (ROOT / "crds" / "validating-admission-policies.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def install_policies(admin: AdminClient) -> None:
    """They take effect about a second after they were created."""
    for document in policy_documents():
        admin.post(f"{PATHS[document['kind']]}?fieldValidation=Strict", document)
    until_refused(admin, "default", _PROBE, "spec.config.api_key")


def remove_policies(admin: AdminClient) -> None:
    for document in reversed(policy_documents()):
        admin.delete(f"{PATHS[document['kind']]}/{document['metadata']['name']}")
    wait_for("the policies are gone", lambda: door(admin, "default", _PROBE) is None)


@contextmanager
def installed_policies(admin: AdminClient) -> Iterator[None]:
    install_policies(admin)
    try:
        yield
    finally:
        remove_policies(admin)


def door(admin: AdminClient, namespace: str, run: dict[str, Any]) -> str | None:
    """The refusal of a dry run of creating it; None: it is accepted."""
    path = f"{RUNS.format(namespace=namespace)}?dryRun=All&fieldValidation=Strict"
    return refusal_of(lambda: admin.post(path, run))


def until_refused(admin: AdminClient, namespace: str, run: dict[str, Any], why: str) -> None:
    """Until creating it is refused for that reason: kinds, policies and what they read take effect one by one."""
    answer: str | None = None

    def look() -> bool:
        nonlocal answer
        try:
            answer = door(admin, namespace, run)
        except ApiError as error:
            if error.code not in (404, 429, 500, 503):  # the kind is not served yet, or a policy cannot be evaluated
                raise
            answer = str(error)
        return why in (answer or "")

    try:
        wait_for(f"a run is refused: {why}", look)
    except AssertionError as error:
        raise AssertionError(f"{error}; the last answer: {answer}") from None


def refusal_of(call: Callable[[], Any]) -> str | None:
    """The API server's refusal of a write: of a policy only its own message; None: it succeeded."""
    try:
        call()
    except ApiError as error:
        if error.code not in (400, 422):
            raise
        return error.message.rpartition(" denied request: ")[2]
    return None
