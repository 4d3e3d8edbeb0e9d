"""`rlctl get`: everything about one run that people ask for. `rlctl results`: its metrics and its weights."""

from collections.abc import Iterator

import typer

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.options import OutputFormat, OutputKind, RunName, Scope, on_target
from rl_operator.cli.printing import age, columns, fitted, one_line, print_object, sparkline, visible
from rl_operator.cli.views.follow import exit_code
from rl_operator.cli.views.run_lines import held_out_table, summary
from rl_operator.status.text.figure_text import money_spent
from rl_operator.targets.runs.run_lookup import events_seen, existing_run
from rl_operator.targets.runs.run_text import time_left
from rl_operator.targets.target import Target

SHOWN_EVENTS = 8


@on_target
def get(name: RunName, *, scope: Scope, output: OutputFormat = OutputKind.TEXT) -> None:
    """Show one run."""
    target, place = scope.target, scope.namespace
    run = existing_run(target, place, name)
    target.look_after(place, name)
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object(run, output)
        return
    typer.echo(fitted(map(visible, describe(run, target, wide=output is OutputKind.WIDE))))


def describe(run: Manifest, target: Target, *, wide: bool) -> Iterator[str]:
    parsed = TrainingRun.model_validate(run)
    spec, status = parsed.spec, parsed.status
    yield f"{parsed.metadata.namespace}/{parsed.metadata.name}   {status.phase or 'Pending'}   ({target.label})"
    yield f"  {one_line(status.message or 'Not reconciled yet.')}"
    yield from (f"  {refusal.code}: {one_line(refusal.sentence)}" for refusal in status.refusals)
    yield f"  environment     {spec.environment}, runtime {spec.runtime}, attempt {status.attempt or '-'}"
    if origin := status.started_from:
        yield f"  began with      the weights of {origin.run} after step {origin.step}"
    if queue := status.queue:
        yield f"  queue           place {queue.place}; {queue.active} of {queue.limit} runs active at {spec.runtime}"
    yield from _metrics(parsed)
    if status.start_time:
        yield f"  {'took' if status.finished else 'running for':<15} {age(status.start_time, status.completion_time)}"
    if status.cost:
        yield f"  cost            {money_spent(status.cost.amount, status.cost.currency, status.cost.budget)}"
    yield from _containers(status)
    if status.checkpoint:
        yield f"  checkpoint      step {status.checkpoint.step}  {status.checkpoint.state_path}"
    if best := status.best:
        yield f"  best            step {best.step}  {best.held_out.text}  {best.sampler_path}"
    if status.weights:
        yield f"  weights         {status.weights.sampler_path}"
    if wide and status.attempts:
        rows = [[str(a.attempt), a.pod, a.reason or "-", str(a.steps)] for a in status.attempts]
        table = columns(["  ATTEMPT", "POD", "ENDED", "STEPS"], [[f"  {row[0]}", *row[1:]] for row in rows])
        yield from table.splitlines()
    events, unseen = events_seen(target, parsed)
    yield from ([f"  {unseen}"] if unseen else ())
    yield from (f"  {event}" for event in (events if wide else events[-SHOWN_EVENTS:]))


def _metrics(run: TrainingRun) -> Iterator[str]:
    """Steps, rewards and held-out accuracy, if there are any."""
    status, metrics = run.status, run.status.metrics
    if progress := status.progress:
        eta = f", {left}" if (left := time_left(run)) else ""
        yield f"  step            {progress.step} of {progress.total_steps} ({progress.percent} %){eta}"
        if progress.stopped_early:
            yield f"  stopped         early: {one_line(progress.stopped_early)}"
    for name, (label, text) in metrics.texts("details").items() if metrics else ():
        curve = f"  {sparkline([each.rollout_reward for each in status.history])}" if name == "rollout_reward" else ""
        yield f"  {label:<15} {one_line(text)}{curve}"
    if status.items:
        yield f"  items           {status.items.text}"
    yield from held_out_table(run)


def _containers(status: RunStatus) -> Iterator[str]:
    """What the run's pod does, and how many environments run in separate pods."""
    for container in status.containers:
        end = f", exit code {container.exit_code}" if container.exit_code is not None else ""
        reason = f" ({container.reason})" if container.reason else ""
        yield f"  {container.name:<15} {container.state}{reason}{end}"
    if (apart := status.environments) and not status.finished:
        failed = f", {apart.failures} failed" if apart.failures else ""
        yield f"  apart           {apart.ready} of {apart.desired} environments ready{failed}"
    if (sandboxes := status.sandboxes) and not status.finished:
        used = f", {sandboxes.replaced} replaced" if sandboxes.replaced else ""
        yield f"  sandboxes       {sandboxes.ready} of {sandboxes.desired} ready{used}"


PARTS = (
    "phase",
    "message",
    "progress",
    "metrics",
    "evaluation",
    "cost",
    "items",
    "history",
    "historyName",
    "checkpoint",
    "best",
    "weights",
    "wandb",
    "failure",
)


@on_target
def results(name: RunName, *, scope: Scope, output: OutputFormat = OutputKind.TEXT) -> None:
    """Show the results of a run: metrics before and after, weights, checkpoint."""
    target, place = scope.target, scope.namespace
    manifest = existing_run(target, place, name)
    target.look_after(place, name)
    if output in (OutputKind.JSON, OutputKind.YAML):
        status = manifest.get("status", {})
        parts = {part: status[part] for part in PARTS if part in status}
        print_object({"name": name, "namespace": place, "target": target.label, **parts}, output)
        return
    run = TrainingRun.model_validate(manifest)
    typer.echo(summary(run, target).lstrip("\n"))
    raise typer.Exit(exit_code(run))
