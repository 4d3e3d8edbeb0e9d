"""The trainer's figures for Prometheus, read from its status when scraped."""

from collections.abc import Iterator

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tinker_atropos.trainer.generation import SamplingTotals
from tinker_atropos.trainer.status import RunStatus


class TrainerCollector(Collector):
    def __init__(self, status: RunStatus, totals: SamplingTotals) -> None:
        self._status = status
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        status, totals = self._status, self._totals
        yield GaugeMetricFamily("rl_trainer_step", "Steps trained.", status.step)
        yield GaugeMetricFamily("rl_trainer_total_steps", "Steps to train.", status.total_steps)
        yield GaugeMetricFamily("rl_trainer_seconds_per_step", "Smoothed duration.", status.seconds_per_step or 0)
        yield GaugeMetricFamily("rl_trainer_queued_groups", "Groups waiting at the api.", status.queued_groups)
        for name, meaning in (("requests", "Requests"), ("rollouts", "Continuations"), ("tokens", "Tokens")):
            counter = CounterMetricFamily(
                f"rl_trainer_sampled_{name}", f"{meaning} sampled, by purpose.", labels=["purpose"]
            )
            for purpose, book in totals.to_wire().items():
                counter.add_metric(["training" if purpose == "sampled" else purpose], book[name])
            yield counter
        yield CounterMetricFamily("rl_trainer_refused_requests", "Sample requests refused.", value=totals.refused)
        yield CounterMetricFamily(
            "rl_trainer_context_overflows", "Prompts that left no room for an answer.", value=totals.context_overflows
        )


def registry(status: RunStatus, totals: SamplingTotals) -> CollectorRegistry:
    own = CollectorRegistry()
    own.register(TrainerCollector(status, totals))
    return own
