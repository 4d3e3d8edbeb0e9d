"""Are our kinds installed? Looked up through discovery, which everyone may read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rl_operator.api.kubernetes_objects import ApiResources
from rl_operator.api.names import API_VERSION, ENVIRONMENT_PLURAL, GROUP, RUN_PLURAL, RUNTIME_PLURAL
from rl_operator.cluster.api_server.client import ApiPath, ClusterClient
from rl_operator.operator_errors import GoneError, OperatorError, TargetUnreachableError

log = logging.getLogger(__name__)

KINDS = tuple(
    resource for plural in (RUN_PLURAL, RUNTIME_PLURAL, ENVIRONMENT_PLURAL) for resource in (plural, f"{plural}/status")
)
RETRY_SECONDS = 0.5


class KindsMissingError(OperatorError):
    """The CRDs are not installed: the user must act."""


async def require_kinds(client: ClusterClient) -> None:
    """Raises KindsMissingError, ForbiddenError or TargetUnreachableError."""
    try:
        discovered = await client.get(ApiPath[ApiResources](f"/apis/{API_VERSION}"))
    except GoneError:
        discovered = {}
    served = {resource["name"] for resource in discovered.get("resources", ())}
    missing = [kind for kind in KINDS if kind not in served]
    if missing:
        raise KindsMissingError(
            f"the API server {client.server} does not serve {', '.join(missing)} of {GROUP}: "
            "install the CRDs first (kubectl apply --server-side -f crds/)"
        )


async def with_patience(call: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Make a call that may be repeated; an API server that is still starting is given some time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    said = False
    while True:
        try:
            return await call()
        except TargetUnreachableError as error:
            if loop.time() + RETRY_SECONDS > deadline:
                raise TargetUnreachableError(f"{error} (tried for {seconds:.0f} s)") from error
            if not said:
                log.warning("waiting up to %.0f s for the API server: %s", seconds, error)
            said = True
        await asyncio.sleep(RETRY_SECONDS)
