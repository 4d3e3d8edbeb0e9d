"""Ten thousand runs on one operator, next to Kubernetes' own Job controller: `python -m tests.benchmarks.scale_bench`.

A real API server; kubelets and trainers are played by another process (pod_player.py). All of it shares this
machine's cores, the measuring included. Takes about ten minutes; `--runs 300 --burst 100 --active 50 --window 5
--repeats 1` tries it in one. Needs etcd, kube-apiserver and kube-controller-manager (KUBEBUILDER_ASSETS or PATH).
"""

import argparse
import asyncio
import statistics

from tests.benchmarks.fleet import Fleet, fleet
from tests.benchmarks.job_controller import PROGRAM, create_jobs
from tests.benchmarks.meter import Span
from tests.integration.cluster.control_plane import HOW_TO_GET, find_program

LAG_RATE = 20.0
SETTLE_SECONDS = 5.0
STEPS = ("all pods exist", "all Running", "all finished")

Spans = tuple[Span, ...]
"""One per step."""


def row(what: str, measured: str, goal: str = "") -> None:
    print(f"| {what} | {measured} | {goal} |", flush=True)


async def burst(count: int) -> Spans:
    """The three steps of so many runs, on an operator of their own."""
    async with fleet() as runs:
        return await runs.create(count), await runs.start(), await runs.end(count)


async def compare(count: int, repeats: int) -> Spans:
    """Jobs and runs in turn. Gives the steps of the sitting whose pods came at the median time."""
    jobs, runs = [], []
    for _ in range(repeats):
        jobs.append(await create_jobs(count))
        runs.append(await burst(count))
    job = sorted(jobs, key=lambda span: span.seconds)[repeats // 2]
    median = sorted(runs, key=lambda spans: spans[0].seconds)[repeats // 2]
    row(f"{count} Jobs: {STEPS[0]} (Kubernetes' Job controller)", job.in_words(count))
    for step, span in zip(STEPS, median, strict=True):
        row(f"{count} runs: {step}", span.in_words(count))
    row(f"{STEPS[0]}: runs / Jobs, medians of {repeats}", f"{median[0].seconds / job.seconds:.2f}", "2.0")
    row("the same by CPU of controller, API server and etcd", f"{median[0].cores / job.cores:.2f}")
    return median


async def life_of_many(options: argparse.Namespace, few: Spans) -> None:
    async with fleet() as runs:
        spans = [await runs.create(options.runs), await runs.start()]
        rss_running = runs.operator.resident_mebibytes()
        spans.append(await runs.end(options.runs - options.active))
        counts = (options.runs, options.runs, options.runs - options.active)
        for step, span, count, before in zip(STEPS, spans, counts, few, strict=True):
            slower = (span.seconds / count) / (before.seconds / options.burst)
            row(f"{count} runs: {step}", span.in_words(count))
            row(f"the same, time per run / that of {options.burst}", f"{slower:.2f}", "1.5")
        row(f"operator RSS, {options.runs} runs active", f"{rss_running:.0f} MiB")
        await with_active(runs, options)
        await all_finished(runs, options)


async def with_active(runs: Fleet, options: argparse.Namespace) -> None:
    some = f"{options.runs} runs, {options.active} active"
    await asyncio.sleep(SETTLE_SECONDS)
    row(f"operator RSS, {some}", f"{runs.operator.resident_mebibytes():.0f} MiB", "200")
    seconds = await runs.restart()
    await asyncio.sleep(SETTLE_SECONDS)
    row(f"restart with {some}: in sync", f"{seconds:.1f} s", "15")
    row("the same: writes made", f"{runs.writes()}", "0")
    row("the same: operator RSS", f"{runs.operator.resident_mebibytes():.0f} MiB", "200")
    await runs.player.tell("serve")
    await asyncio.sleep(options.window / 2)
    row(f"operator CPU, {some} and polled", f"{100 * await runs.cpu_share(options.window):.1f} %", "25")
    changed = min(options.active, 300)
    await runs.end(changed, LAG_RATE)
    lags = runs.lags(changed)
    p50, p99 = statistics.median(lags), lags[int(len(lags) * 0.99) - 1]
    row(f"status behind a pod's change, p50 / p99 of {changed}", f"{1000 * p50:.0f} / {1000 * p99:.0f} ms", "p99 1000")


async def all_finished(runs: Fleet, options: argparse.Namespace) -> None:
    await runs.end(runs.created - runs.ended)
    await asyncio.sleep(SETTLE_SECONDS)
    before = runs.writes()
    await runs.create(options.lives)
    await runs.start()
    await runs.end(options.lives)
    await asyncio.sleep(SETTLE_SECONDS)
    row("writes per run over its life, besides Events", f"{(runs.writes() - before) / options.lives:.2f}", "8")
    row("runs whose status is true at the end", f"{await runs.truth()} of {runs.created}", f"{runs.created}")
    row(f"operator CPU, {runs.created} finished", f"{100 * await runs.cpu_share(options.window):.2f} %", "1")
    row("operator RSS then", f"{runs.operator.resident_mebibytes():.0f} MiB", "200")


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=10_000, help="how many in all")
    arguments.add_argument("--active", type=int, default=1000, help="how many of them stay active for a while")
    arguments.add_argument("--burst", type=int, default=1000, help="how many are compared with Jobs")
    arguments.add_argument("--lives", type=int, default=100, help="runs whose writes are counted")
    arguments.add_argument("--repeats", type=int, default=3, help="how often they are compared")
    arguments.add_argument("--window", type=float, default=60.0, help="seconds over which CPU is measured")
    options = arguments.parse_args()
    if not all(find_program(name) for name in ("etcd", "kube-apiserver", PROGRAM)):
        print(f"scale_bench is skipped: it {HOW_TO_GET}")
        return
    print("| what | measured | goal |\n|---|---|---|")
    few = await compare(options.burst, options.repeats)
    await life_of_many(options, few)


if __name__ == "__main__":
    asyncio.run(main())
