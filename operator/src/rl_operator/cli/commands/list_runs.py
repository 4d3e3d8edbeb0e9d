"""`rlctl list`: one line per run."""

from collections.abc import Callable

import typer

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.cli.options import AllNamespaces, Experiment, OutputFormat, OutputKind, Scope, Selector, on_target
from rl_operator.cli.printing import age, fitting_columns, one_line, print_object

Cell = Callable[[Manifest], str]


@on_target
def list_runs(
    *,
    scope: Scope,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    experiment: Experiment = "",
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """List runs."""
    target = scope.target
    place = None if all_namespaces else scope.namespace
    if experiment:  # the kinds cost 0.2 s, which a list without it need not take
        from rl_operator.targets.experiment_runs import selector_of

        selector = ",".join(filter(None, (selector, selector_of(experiment))))
    runs = list(target.runs(place, selector))
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object({"target": target.label, "items": runs}, output)
        return
    where = f"namespace {place}" if place else "all namespaces"
    if not runs:
        typer.echo(f"No runs in {where} of {target.label}.")
        return
    for run in runs:
        target.look_after(run["metadata"]["namespace"], run["metadata"]["name"])
    cells = {**_CELLS, **(_WIDE_CELLS if output is OutputKind.WIDE else {})}
    if all_namespaces:
        cells = {"NAMESPACE": lambda run: str(run["metadata"]["namespace"]), **cells}
    rows = [[one_line(cell(run)) for cell in cells.values()] for run in runs]
    table, left_out = fitting_columns(list(cells), rows, _DISPENSABLE if output is OutputKind.TEXT else ())
    typer.echo(table)
    wider = f"; a wider terminal also shows {', '.join(left_out)}" if left_out else ""
    typer.echo(f"\n{len(runs)} in {where} of {target.label}{wider}", err=True)


def _phase(run: Manifest) -> str:
    """With the queue position of a run that waits for a slot at its runtime."""
    status = run.get("status", {})
    phase, queue = status.get("phase", "Pending"), status.get("queue")
    return f"{phase} (place {queue['place']})" if queue else str(phase)


def _step(run: Manifest) -> str:
    progress = run.get("status", {}).get("progress")
    return f"{progress['step']}/{progress['totalSteps']}" if progress else "-"


def _metric(run: Manifest, name: str) -> str:
    """A number, or an evaluated figure's."""
    told = run.get("status", {}).get("metrics", {}).get(name)
    value = told["value"] if isinstance(told, dict) else told
    return "-" if value is None else f"{value:.3f}"


_CELLS: dict[str, Cell] = {
    "NAME": lambda run: str(run["metadata"]["name"]),
    "ENVIRONMENT": lambda run: str(run["spec"]["environment"]),
    "PHASE": _phase,
    "STEP": _step,
    "ROLLOUT REWARD": lambda run: _metric(run, "rolloutReward"),
    "HELD-OUT": lambda run: _metric(run, "heldOut"),
    "AGE": lambda run: age(run["metadata"].get("creationTimestamp")),
}
_DISPENSABLE = ("ENVIRONMENT", "AGE", "ROLLOUT REWARD", "HELD-OUT", "NAMESPACE")
"""Columns that a narrow terminal does without, in this order: wrapped lines do not read as a table."""

_WIDE_CELLS: dict[str, Cell] = {
    "RUNTIME": lambda run: str(run["spec"].get("runtime", "default")),
    "ATTEMPT": lambda run: str(run.get("status", {}).get("attempt", "-")),
    "POD": lambda run: str(run.get("status", {}).get("podName", "-")),
    "MESSAGE": lambda run: str(run.get("status", {}).get("message", "-")),
}
