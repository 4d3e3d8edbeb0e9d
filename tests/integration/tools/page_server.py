"""The gateway's page in front of a real API server, and teams whose service accounts have different rights."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.cluster.admin import RUNS, AdminClient
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.tools.agents import tools_server

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
KIND = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun"}
NOTHING, VIEWS, CHANGES = ("deletecollection",), ("get", "list"), ("get", "list", "patch")
"""Rights on runs; a rule needs a verb."""


@contextmanager
def page_server(plane: ControlPlane, folder: Path, namespace: str) -> Iterator[str]:
    """The address of `rlctl tools serve --ui`, whose own kubeconfig is an administrator's, with a client certificate;
    `namespace`: its usual one.
    """
    config = json.loads(plane.certificate_kubeconfig().read_text(encoding="utf-8"))
    config["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    with tools_server("--ui", env_vars={"KUBECONFIG": str(path)}) as (address, _):
        yield address


def made_team(admin: AdminClient, namespace: str, verbs: tuple[str, ...]) -> str:
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    rules = [
        {"apiGroups": ["rl-operator.dev"], "resources": ["rltrainingruns"], "verbs": list(verbs)},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"}
    binding = {"metadata": {"name": "viewer"}, "roleRef": role, "subjects": [account]}
    spec = {"environment": "sort_digits", "runtime": "tiny", "suspend": True}
    admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    admin.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "viewer"}})
    admin.post(f"{RBAC}/roles".format(namespace=namespace), {"metadata": {"name": "viewer"}, "rules": rules})
    admin.post(f"{RBAC}/rolebindings".format(namespace=namespace), binding)
    admin.post(RUNS.format(namespace=namespace), {**KIND, "metadata": {"name": f"of-{namespace}"}, "spec": spec})
    return new_token(admin, namespace)


def new_token(admin: AdminClient, namespace: str, **spec: Any) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/viewer/token"
    token: str = admin.post(path, {"spec": spec})["status"]["token"]
    return token


def bound_token(admin: AdminClient, namespace: str) -> tuple[str, str]:
    """A token, and the path of a Secret: the API server refuses the token as soon as that is deleted."""
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    bound = admin.post(secrets, {"metadata": {"generateName": "bound-"}})["metadata"]
    reference = {"kind": "Secret", "apiVersion": "v1", "name": bound["name"], "uid": bound["uid"]}
    return new_token(admin, namespace, boundObjectRef=reference), f"{secrets}/{bound['name']}"
