"""Where the API server keeps what the operator reads and writes."""

import re
from dataclasses import dataclass
from typing import Final

from rl_operator.api.names import API_VERSION, ENVIRONMENT_PLURAL, OBJECT_NAME_PATTERN, RUN_PLURAL, RUNTIME_PLURAL
from rl_operator.errors import GoneError


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API. `root` is `/api/v1` or `/apis/GROUP/VERSION`."""

    root: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, of one object or of its subresource; no namespace: cluster-wide.

        Raises GoneError for what nothing can be called: users write names, and a path must not lead elsewhere.
        """
        for given in (namespace or None, name):
            if given is not None and not re.fullmatch(OBJECT_NAME_PATTERN, given):
                raise GoneError(f"there are no {self.plural} in or at {given!r}: not a valid object name")
        scope = ["namespaces", namespace] if namespace else []
        return "/".join([self.root, *scope, *(part for part in (self.plural, name, subresource) if part)])


PODS: Final = Resource("/api/v1", "pods")
CONFIG_MAPS: Final = Resource("/api/v1", "configmaps")
SERVICES: Final = Resource("/api/v1", "services")
NAMESPACES: Final = Resource("/api/v1", "namespaces")
SECRETS: Final = Resource("/api/v1", "secrets")
JOBS: Final = Resource("/apis/batch/v1", "jobs")
DEPLOYMENTS: Final = Resource("/apis/apps/v1", "deployments")
NETWORK_POLICIES: Final = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
EVENTS: Final = Resource("/apis/events.k8s.io/v1", "events")
LEASES: Final = Resource("/apis/coordination.k8s.io/v1", "leases")
RUNS: Final = Resource(f"/apis/{API_VERSION}", RUN_PLURAL)
RUNTIMES: Final = Resource(f"/apis/{API_VERSION}", RUNTIME_PLURAL)
ENVIRONMENTS: Final = Resource(f"/apis/{API_VERSION}", ENVIRONMENT_PLURAL)

CHILDREN: Final = {
    "Pod": PODS,
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
    "NetworkPolicy": NETWORK_POLICIES,
}
