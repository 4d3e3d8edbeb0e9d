"""`rlctl compare`: runs side by side, or an experiment from best to worst, with a verdict that names its evidence."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import typer

from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.options import Experiment, OutputFormat, OutputKind, Scope, on_target
from rl_operator.cli.printing import TEXT_WIDTH, columns, fitted, fitting_columns, print_object, text_width
from rl_operator.documents.yaml_text import flow
from rl_operator.experiments.ranking import conclusions, ranked, seed_groups, swept_fields, verdicts
from rl_operator.experiments.run_figures import RunFigures, differing_settings
from rl_operator.operator_errors import RefusedError
from rl_operator.status.text.sentences import cut
from rl_operator.targets.experiment_runs import figures, keep, read_experiment
from rl_operator.targets.runs.held_out_answers import with_answers
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_text import compared_figures
from rl_operator.targets.target import Target

LONGEST_VALUE: Final = 32
MOST_SETTINGS: Final = 30
GAP: Final = 3
UNKNOWN: Final = "-"


# --- two runs and more, side by side --------------------------------------------------------------------------------
def side_by_side(rows: Sequence[RunFigures], width: int = TEXT_WIDTH) -> Iterator[str]:
    """A column for each run, in as many blocks as the width makes necessary; then the verdicts."""
    told = [compared_figures(row, UNKNOWN) for row in rows]
    lines = [(_LABELS.get(name, name), [each[name] for each in told]) for name in (told[0] if told else ())]
    settings = [(field, [_shown(each) for each in values]) for field, values in differing_settings(rows).items()]
    table = [*lines, *settings[:MOST_SETTINGS]]
    for first, last in _blocks([row.name for row in rows], table, width):
        yield columns(
            ["", *(row.name for row in rows[first:last])], [[name, *cells[first:last]] for name, cells in table]
        )
        yield ""
    if not settings:
        yield "settings: no difference is known"
    if more := settings[MOST_SETTINGS:]:
        yield f"{len(more)} more settings differ: -o yaml shows all of them"
    yield from (each.sentence for each in verdicts(rows))


def _blocks(names: Sequence[str], table: Sequence[tuple[str, list[str]]], width: int) -> Iterator[tuple[int, int]]:
    """The first run of each block and the one after its last: at least one in each."""
    widths = [max(len(name), *(len(cells[at]) for _, cells in table)) + GAP for at, name in enumerate(names)]
    label = max(len(name) for name, _ in table)
    first, used = 0, label
    for at, each in enumerate(widths):
        if at > first and used + each > width:
            yield first, at
            first, used = at, label
        used += each
    yield first, len(names)


_LABELS: Final[Mapping[str, str]] = {"held-out before": "  before", "best held-out": "  best"}
"""Below `held-out`."""


def _shown(value: object) -> str:
    return cut(flow(value), LONGEST_VALUE)


# --- the runs of an experiment, from best to worst ------------------------------------------------------------------
_DISPENSABLE: Final = ("TOOK", "ROLLOUT REWARD", "STEP", "PHASE")
"""Columns that a narrow terminal does without, in this order, before what was swept: names of runs say most of that."""


def experiment_table(rows: Sequence[RunFigures], width: int = sys.maxsize) -> Iterator[str]:
    """A line for each run, with what was swept; then what seeds say, and the verdict on the best two."""
    ordered = ranked(rows)
    fields = swept_fields(ordered)
    heads = ["", "NAME", "PHASE", "STEP", "ROLLOUT REWARD", "HELD-OUT", "TOOK", *_heads(fields)]
    lines = [_line(place, row, fields) for place, row in enumerate(ordered, 1)]
    table, left_out = fitting_columns(heads, lines, (*_DISPENSABLE, *_heads(fields)), width)
    yield table
    if left_out:
        yield f"a wider terminal also shows {', '.join(left_out)}"
    yield ""
    yield from (f"{row.name} has no held-out figure: {row.without_figure}" for row in ordered if row.without_figure)
    yield from conclusions(ordered)


def _line(place: int, row: RunFigures, fields: Sequence[str]) -> list[str]:
    phase = f"{row.phase}, gone" if row.gone else row.phase
    swept = [_shown(row.swept[field]) if field in row.swept else "-" for field in fields]
    told = compared_figures(row, UNKNOWN)
    return [
        str(place),
        row.name,
        phase,
        *(told[name] for name in ("step", "rollout reward", "held-out", "took")),
        *swept,
    ]


def _heads(fields: Sequence[str]) -> list[str]:
    """The last part of each path, if it is enough to tell them apart."""
    short = [field.rpartition(".")[2] for field in fields]
    return [last if short.count(last) == 1 else field for last, field in zip(short, fields, strict=True)]


def experiment_values(rows: Sequence[RunFigures]) -> dict[str, object]:
    """The same as JSON, in the order of the ranking."""
    ordered = ranked(rows)
    return {
        "runs": [
            {"place": place, **row.kept, **({"withoutFigure": row.without_figure} if row.without_figure else {})}
            for place, row in enumerate(ordered, 1)
        ],
        "verdicts": [each.to_wire() for each in verdicts(ordered)[:1]],
        "overSeeds": [group.to_wire() for group in seed_groups(ordered)],
        "conclusions": list(conclusions(ordered)),
    }


MOST_RUNS = 10
"""Side by side."""


@on_target
def compare(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Two runs or more.")] = None,
    *,
    experiment: Experiment = "",
    scope: Scope,
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """Compare runs: figures, the settings that differ, and which one is better on the same held-out items.

    With --experiment NAME: all runs of a sweep from best to worst, also those that were deleted. Their table is kept in
    the ConfigMap experiment-NAME.
    """
    target, namespace, named = scope.target, scope.namespace, names or []
    if bool(named) == bool(experiment):
        raise RefusedError("give the names of two runs or more, or --experiment NAME")
    if experiment:
        show_experiment(target, namespace, experiment, output)
        return
    rows = _rows(target, namespace, named)
    if output in (OutputKind.JSON, OutputKind.YAML):
        names = [row.name for row in rows]
        differing = differing_settings(rows).items()  # other settings are left out
        values = {
            "runs": [row.kept for row in rows],
            "differences": {field: dict(zip(names, values, strict=True)) for field, values in differing},
            "verdicts": [each.to_wire() for each in verdicts(rows)],
        }
        print_object({"target": target.label, "namespace": namespace, **values}, output)
    else:
        typer.echo(fitted(side_by_side(rows, text_width(TEXT_WIDTH))))


def _rows(target: Target, namespace: str, names: list[str]) -> tuple[RunFigures, ...]:
    """Raises RefusedError for too few or too many, for the same twice, and for one that does not exist."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusedError(f"{twice} is named twice: a run is compared with others")
    if not 2 <= len(names) <= MOST_RUNS:
        named = "one run is named" if len(names) == 1 else f"{len(names)} runs are named"
        raise RefusedError(f"{named}: 2 to {MOST_RUNS} can stand side by side")
    runs = [TrainingRun.model_validate(existing_run(target, namespace, name)) for name in names]
    for name in names:
        target.look_after(namespace, name)
    return with_answers(target, figures(target, runs), runs)


def show_experiment(target: Target, namespace: str, name: str, output: OutputKind) -> None:
    """Print the table, and keep it."""
    found = read_experiment(target, namespace, name)
    rows = found.answered(target)
    if output in (OutputKind.JSON, OutputKind.YAML):
        head = {"target": target.label, "namespace": namespace, "experiment": name}
        print_object({**head, **experiment_values(rows)}, output)
    else:
        typer.echo(fitted(experiment_table(rows, text_width())))
        gone = sum(row.gone for row in found.rows)
        lost = f", {gone} of them gone" if gone else ""
        typer.echo(f"\n{len(found.rows)} runs of experiment {name}{lost}, in {target.label}", err=True)
    if unkept := keep(target, found):
        target.note(unkept)
