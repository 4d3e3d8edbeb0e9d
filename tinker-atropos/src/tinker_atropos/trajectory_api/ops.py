"""The api's own state for people, the operator and Prometheus."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tinker_atropos.trajectory_api.leases import PEERS
from tinker_atropos.trajectory_api.service import TrajectoryService


def ops_status(service: TrajectoryService, restarts: int) -> dict[str, Any]:
    """`GET /status` of the ops port."""
    run = service.run_state
    live = {env.env_id for env in service.live_environments()}
    return {
        "registered": run.registration is not None,
        "started": run.started,
        "step": run.progress.steps_trained,
        "totalSteps": run.registration.num_steps if run.registration else None,
        "runOver": service.over_reason(),
        "queue": _queue(service),
        "environments": [
            {"envId": env.env_id, "name": env.wandb_name, "live": env.env_id in live}
            for env in service.journal.environments()
        ],
        "leases": {role: asdict(service.lease(role)) for role in PEERS},
        "receivedGroups": service.received_groups,
        "deliveredBatches": service.delivered_batches,
        "refusedGroups": dict(service.refused),
        "worker": {"pid": os.getpid(), "restarts": restarts},
        "journal": {"bytes": service.journal.used_bytes(), "error": service.unready()},
    }


def _queue(service: TrajectoryService) -> dict[str, dict[str, int]]:
    queue = {state: {"groups": 0, "sequences": 0} for state in ("buffered", "queued", "delivered")}
    for count in service.journal.group_counts():
        queue[count.state]["groups"] += count.groups
        queue[count.state]["sequences"] += count.sequences
    return queue


class ServiceCollector(Collector):
    """Prometheus metrics, read from the service when asked for."""

    def __init__(self, service: TrajectoryService, restarts: int) -> None:
        self._service = service
        self._restarts = restarts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service = self._service
        queue = GaugeMetricFamily("rl_api_sequences", "Sequences in the journal, by state.", labels=["state"])
        for state, held in _queue(service).items():
            queue.add_metric([state], held["sequences"])
        refused = CounterMetricFamily("rl_api_groups_refused", "Groups refused for good.", labels=["reason"])
        for reason, groups in service.refused.items():
            refused.add_metric([reason], groups)
        yield queue
        yield refused
        yield CounterMetricFamily("rl_api_groups_received", "Groups stored.", value=service.received_groups)
        yield CounterMetricFamily("rl_api_batches_delivered", "Batches handed out.", value=service.delivered_batches)
        yield CounterMetricFamily("rl_api_worker_restarts", "Times the worker was started again.", value=self._restarts)
        yield GaugeMetricFamily("rl_api_step", "Steps trained.", value=service.run_state.progress.steps_trained)
        yield GaugeMetricFamily(
            "rl_api_journal_bytes", "Bytes in use in the journal.", value=service.journal.used_bytes()
        )
        yield GaugeMetricFamily(
            "rl_api_journal_failing",
            "1 while the journal refuses a kind of write.",
            value=float(service.unready() is not None),
        )
