"""The operator as a process: its connections, its ports, and what is waited for before it begins."""

from functools import partial

from rl_operator.api.names import MANAGER
from rl_operator.cluster.client import ClusterClient
from rl_operator.cluster.connection import named
from rl_operator.cluster.request_guard import counted, fenced
from rl_operator.cluster.watch_ages import WatchAges
from rl_operator.handlers.kinds import require_kinds, with_patience
from rl_operator.handlers.leading import elector_of
from rl_operator.handlers.operator import Operator
from rl_operator.handlers.probe_server import listening, metrics, probe
from rl_operator.settings import OperatorSettings


async def run_operator(settings: OperatorSettings) -> None:
    """The whole process. Raises OperatorErrors when the cluster cannot be served."""
    place = (settings.kubeconfig, settings.context)
    ages = WatchAges(settings.stuck_seconds)
    always = (named(MANAGER), counted(ages))
    # Of its own: slow calls about runs must not take the connections that the lease needs.
    async with await ClusterClient.connect(*place, settings.lease_seconds / 4, always) as lease_client:
        elector = elector_of(settings, lease_client)
        fence = (fenced(lambda: elector.leads),) if elector else ()
        async with await ClusterClient.connect(*place, settings.request_seconds, (*always, *fence)) as client:
            await _serve(Operator(client, settings, ages, elector), client, settings)


async def _serve(operator: Operator, client: ClusterClient, settings: OperatorSettings) -> None:
    """Probes answer from the start, so that an API server that is away is waited for."""
    probes = {"/healthz": probe(operator.health.trouble), "/readyz": probe(operator.health.unready)}
    scrapes = {"/metrics": metrics(operator.refresh_metrics)}
    async with (
        listening(settings.probe_host, settings.probe_port, probes),
        listening(settings.metrics_host, settings.metrics_port, scrapes),
    ):
        await with_patience(partial(require_kinds, client), settings.connect_seconds)
        await operator.run()
