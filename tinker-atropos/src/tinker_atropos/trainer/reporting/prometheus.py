"""The trainer's metrics for Prometheus, read when scraped."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.inference.generation import SamplingTotals
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus


@dataclass(frozen=True, eq=False)
class TrainerCollector(Collector):
    """`books` are as in `/status`."""

    status: LiveStatus
    totals: SamplingTotals
    progress: StepCounts
    books: Callable[[], Mapping[str, Mapping[str, int]]]
    spending: Spending

    def collect(self) -> Iterator[Metric]:
        yield from _gauges(self.status)
        yield from _charges(self.spending)
        yield from _counters(self.totals, self.progress, self.books())


def _gauges(status: LiveStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily("rl_trainer_step", "Steps trained.", status.step)
    yield GaugeMetricFamily("rl_trainer_total_steps", "Steps to train.", status.total_steps)
    yield GaugeMetricFamily("rl_trainer_seconds_per_step", "Smoothed duration.", status.seconds_per_step or 0)
    yield GaugeMetricFamily("rl_trainer_queued_groups", "Groups waiting at the api.", status.queued_groups)
    paused = int(status.standstill.pause is not None)
    yield GaugeMetricFamily("rl_trainer_paused", "1 while it waits for a backend or a disk that has no room.", paused)
    yield GaugeMetricFamily("rl_trainer_warnings", "Warnings that stand; /status says them.", len(status.warnings))


def _charges(spending: Spending) -> Iterator[Metric]:
    used = spending.used
    charged = CounterMetricFamily("rl_trainer_charged_tokens", "Tokens that the backend charges for.", labels=["price"])
    for price, tokens in (("prefill", used.prefill), ("sample", used.sample), ("train", used.train)):
        charged.add_metric([price], tokens)
    yield charged
    if spending.prices is not None:
        cost = GaugeMetricFamily("rl_trainer_cost", "What the run has cost, all attempts.", labels=["currency"])
        cost.add_metric([spending.prices.currency], spending.amount)
        yield cost


def _counters(totals: SamplingTotals, progress: StepCounts, books: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    for name, meaning in (("requests", "Requests"), ("rollouts", "Continuations"), ("tokens", "Tokens")):
        counter = CounterMetricFamily(
            f"rl_trainer_sampled_{name}", f"{meaning} sampled, by purpose.", labels=["purpose"]
        )
        for purpose, book in totals.to_wire().items():
            counter.add_metric(["training" if purpose == "sampled" else purpose], book[name])
        yield counter
    dropped = CounterMetricFamily("rl_trainer_dropped_rollouts", "Rollouts dropped, by reason.", labels=["reason"])
    for reason, rollouts in books["dropped"].items():
        dropped.add_metric([reason], rollouts)
    yield dropped
    for name, meaning, value in (
        ("refused_requests", "Sample requests refused.", totals.refused),
        ("context_overflows", "Prompts that left no room for an answer.", totals.context_overflows),
        ("trained_rollouts", "Rollouts trained.", books["trained"]["rollouts"]),
        ("trained_tokens", "Tokens trained.", books["trained"]["tokens"]),
        ("backend_rebuilds", "Times that a lost backend was opened again.", progress.rebuilds),
        ("replayed_steps", "Steps trained again after that.", progress.replayed),
    ):
        yield CounterMetricFamily(f"rl_trainer_{name}", meaning, value=value)
