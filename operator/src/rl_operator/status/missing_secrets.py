"""Missing Secrets, named with what to do. The operator may read no Secret: the kubelet's words tell."""

import re
from collections.abc import Iterator
from typing import Final

from rl_operator.status.observation import PodObservation

_NO_SECRET: Final = re.compile(r'secret "(?P<secret>[^"]+)" not found')
_NO_KEY: Final = re.compile(r"couldn't find key (?P<key>\S+) in Secret [^/\s]+/(?P<secret>\S+)")
"""What the kubelet says of a container that waits with CreateContainerConfigError (pkg/kubelet/kubelet_pods.go)."""


def missing_secrets(pod: PodObservation) -> str | None:
    """What the pod's containers wait for, a sentence per Secret; None: for no Secret.

    The kubelet names the first fault of each container only, and tries again by itself.
    """
    return " ".join(dict.fromkeys(_sentences(pod))) or None


def _sentences(pod: PodObservation) -> Iterator[str]:
    for container in pod.containers:
        if not container.secrets:
            continue
        if found := _NO_SECRET.search(container.message):
            yield _absent(pod, found["secret"])
        elif found := _NO_KEY.search(container.message):
            yield _without_key(pod, found["secret"], found["key"])


def _absent(pod: PodObservation, secret: str) -> str:
    keys = sorted({use.key for container in pod.containers for use in container.secrets if use.secret == secret})
    literals = "".join(f" --from-literal={key}=…" for key in keys)
    command = f"kubectl -n {pod.namespace} create secret generic {secret}{literals}"
    return f"Secret {pod.namespace}/{secret} does not exist: {command}"


def _without_key(pod: PodObservation, secret: str, key: str) -> str:
    command = f"""kubectl -n {pod.namespace} patch secret {secret} -p '{{"stringData": {{"{key}": "…"}}}}'"""
    return f"Secret {pod.namespace}/{secret} has no key {key}: {command}"
