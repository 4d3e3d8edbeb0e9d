"""What the kubeconfig says about its contexts: the name in use, and the namespace that goes with it."""

from dataclasses import dataclass
from pathlib import Path

from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, list_kube_config_contexts

from rl_operator.cluster.connection import any_file

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class ClusterContext:
    name: str
    namespace: str


def cluster_context(name: str = "") -> ClusterContext:
    """The named context; without a name that of the pod, as a connection is made, else the current one."""
    if not name and in_cluster():
        return ClusterContext("in-cluster", own_namespace())
    if not any_file(KUBE_CONFIG_DEFAULT_LOCATION):
        return ClusterContext(name or "in-cluster", own_namespace())  # the loader would print a warning of its own
    try:
        contexts, active = list_kube_config_contexts()
    except (ConfigException, OSError, ValueError, TypeError):
        # None that can be read: connecting says what is wrong with it.
        return ClusterContext(name or "in-cluster", own_namespace())
    chosen = next((context for context in contexts if context["name"] == name), active)
    return ClusterContext(chosen["name"], chosen["context"].get("namespace") or "default")


def in_cluster() -> bool:
    """Whether this process runs in a pod."""
    return SERVICE_ACCOUNT_NAMESPACE.is_file()


def own_namespace() -> str:
    """The namespace of the pod that this process runs in; outside of a cluster `default`."""
    return SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip() if in_cluster() else "default"
