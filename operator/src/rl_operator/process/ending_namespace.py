"""The end of an operator that serves its own namespace, when that namespace is deleted.

Kubernetes deletes a namespace's pods first, this process among them, and all else once no pod is left. A pod of a run
would wait for the operator to read its result, and no operator would come. Its run is going to be deleted, too: there
is no status that the result could be written into, and nothing is lost.
"""

import logging
from collections.abc import Awaitable, Callable

from rl_operator.cluster.api_server.client import METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.resources import NAMESPACES
from rl_operator.cluster.cache.caches import Caches
from rl_operator.errors import OperatorError
from rl_operator.status.observed.observation import PodObservation

log = logging.getLogger(__name__)


async def release_pods(
    namespace: str,
    client: ClusterClient,
    caches: Caches,
    remove_finalizer: Callable[[PodObservation], Awaitable[None]],
) -> None:
    """If that namespace is being deleted: no pod in it waits for this operator any longer. Never fails."""
    try:
        found = await client.get(NAMESPACES.path(name=namespace), accept=METADATA_ONLY)
        if not found["metadata"].get("deletionTimestamp"):
            return
        held = [pod.observation for pod in caches.pods if pod.observation.held]
        log.info(
            "namespace %s is being deleted: %d pods no longer wait for their results to be read", namespace, len(held)
        )
        for pod in held:
            await remove_finalizer(pod)
    except OperatorError as error:
        log.warning("pods of namespace %s may keep their finalizer: %s", namespace, error)
