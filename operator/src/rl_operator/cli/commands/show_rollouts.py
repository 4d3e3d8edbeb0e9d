"""`rlctl rollouts`: what a run trained on, what it did not train on, and why."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic.alias_generators import to_camel

from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.options import OutputKind, RunName, Scope, on_target
from rl_operator.cli.printing import TEXT_WIDTH, print_object, program, text_width
from rl_operator.cli.views.rollout_view import StepRow, answer_text, step_rows
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.rollout_figures import Fate, Figure
from rl_operator.rollouts.rollout_query import RolloutQuery, StepAnswer, TextSearch, answers, streamed
from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.rollouts.step_reading import Reasons
from rl_operator.rollouts.visible_text import escaped_json
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.target import Target

_FATES = {"trained": "TRAINED", "no_advantage": "NO-ADV", "dropped": "DROP", "evaluated": "EVAL", "lost": "LOST"}
HEADER = ("STEP", "BATCH REWARD", *_FATES.values(), "SIZE")
WIDTHS = (5, 12, 7, 6, 5, 4, 4, 6)
GAP = 3
"""Between columns, where there is room."""


def table_lines(rows: Iterable[StepRow], width: int) -> Iterator[str]:
    """Each as soon as it is known: a large folder takes a while. A narrow terminal does without their sizes."""
    fits = sum(WIDTHS) + len(WIDTHS) - 1 <= width
    widths = WIDTHS if fits else WIDTHS[:-1]
    gap = " " * max(1, min(GAP, (width - sum(widths)) // (len(widths) - 1)))
    yield _line(HEADER, widths, gap)
    for row in rows:
        reward = "-" if row.batch_reward is None else f"{row.batch_reward:.3f}"
        counts = (str(row.counts[fate] or "-") for fate in _FATES)
        tried = f"  attempts {', '.join(map(str, row.attempts))}" if len(row.attempts) > 1 else ""
        unreadable = f"  {row.faults} unreadable" if row.faults else ""
        yield _line((str(row.step), reward, *counts, size_text(row.bytes)), widths, gap) + tried + unreadable


def _line(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    return gap.join(cell.rjust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def size_text(size: int) -> str:
    """`812 B`, `20 kB`, `1.3 MB`."""
    if size < 1e3:
        return f"{size} B"
    return f"{size / 1e3:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def answer_object(answer: StepAnswer) -> dict[str, object]:
    summary = answer.summary
    ledger = summary.ledger
    return {
        "step": summary.step,
        "attempt": summary.attempt,
        "trained": summary.record is not None,
        "alsoTrainedBy": sorted(summary.older),
        "batchReward": summary.batch_reward,
        "evaluation": _plain(summary.evaluation).get("metrics", {}) if summary.evaluation else {},
        "evaluatedReward": summary.evaluated.value,
        "metrics": _plain(summary.record).get("metrics", {}) if summary.record else {},
        "tokens": dict(ledger.tokens),
        "balances": ledger.balances,
        "groupsByFate": dict(summary.groups),
        "dropped": _reasons(summary.dropped),
        "lost": _reasons(summary.lost),
        "notes": list(summary.notes()),
        "found": answer.found,
        "groups": [
            (group := _plain(chosen.record)) | {"rollouts": [group["rollouts"][number] for number in chosen.rollouts]}
            for chosen in answer.groups  # with the rollouts that match, in their order
        ],
        "lostRecords": [_plain(record) for _, record in answer.lost],
    }


def _plain(record: Any) -> dict[str, Any]:
    """As JSON: no NaN and no infinity."""
    found: dict[str, Any] = json.loads(record.model_dump_json(exclude_unset=True))
    return found


def _reasons(reasons: Reasons) -> list[dict[str, object]]:
    return [{**why._asdict(), "count": count, "tokens": reasons.tokens[why]} for why, count in reasons.counts.items()]


def _row_object(row: StepRow) -> dict[str, object]:
    return {to_camel(name): value for name, value in vars(row).items()}


SHOWN_GROUPS = 4


class RolloutOutput(StrEnum):
    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


@on_target
def rollouts(
    name: RunName,
    *,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Default: the newest that has groups.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="List the steps that there are.")] = False,
    sort: Annotated[
        Figure | None, typer.Option("--sort", help="Rollouts, and groups by their first. gap: max |log p - log q|.")
    ] = None,
    ascending: Annotated[bool, typer.Option("--ascending", help="Smallest first.")] = False,
    grep: Annotated[str, typer.Option("--grep", metavar="REGEX", help="Only rollouts whose texts have it.")] = "",
    fate: Annotated[Fate | None, typer.Option("--fate", help="Only groups of this fate, or what was lost.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help=f"Groups; default: {SHOWN_GROUPS}, and all for programs.")
    ] = None,
    scope: Scope,
    output: Annotated[RolloutOutput, typer.Option("--output", "-o", help="How to print.")] = RolloutOutput.TEXT,
) -> None:
    """Show the rollouts of a step: prompts, answers, rewards, and what became of every token.

    rlctl rollouts sorting --step 12 --sort gap

    rlctl rollouts sorting --grep "I cannot" -o jsonl

    Without --step, --grep searches all steps, the newest first. -o jsonl prints the lines as they are in the files.
    """
    chosen = {"--step": step, "--sort": sort, "--grep": grep or None, "--fate": fate, "--limit": limit}
    if steps and (given := [option for option, value in chosen.items() if value is not None]):
        raise RefusedError(f"--steps lists all steps, and {given[0]} chooses rollouts: give one of them")
    if ascending and sort is None:
        raise RefusedError("--ascending is about --sort: add it, like --sort reward")
    search = TextSearch.of(grep) if grep else None
    run = TrainingRun.model_validate(existing_run(scope.target, scope.namespace, name))
    known = kept_steps(run, scope.target)
    if steps:
        _print_steps(known, output)
        return
    query = RolloutQuery(
        step=step,
        fate=fate,
        sort=sort,
        ascending=ascending,
        search=search,
        limit=limit or (SHOWN_GROUPS if output is RolloutOutput.TEXT else None),
    )
    if not _PRINTERS[output](name, known, query):
        typer.echo(
            f"no rollouts of run {name} ({known.source.where}) match; --steps lists the steps that there are", err=True
        )


def kept_steps(run: TrainingRun, target: Target) -> RolloutSteps:
    """The steps that the run has kept: one at least. Raises RefusedError."""
    known = RolloutSteps.of(target.rollouts(run))
    if known.listing.note:
        typer.echo(f"note: {known.listing.note}", err=True)
    if not known.steps:
        raise RefusedError(_why_none(run, known.source.where, target))
    return known


def _why_none(run: TrainingRun, where: str, target: Target) -> str:
    name = run.metadata.name
    if not run.status.finished:
        return f"run {name} has no rollouts in {where} yet: they are there when its first step is trained"
    return (
        f"run {name} has no rollouts in {where}: it kept none (trainer.keep_rollouts_mb is 0, or the disk was "
        f"full), or an older version trained it; `{program()} logs {name}{target.flags}` says more"
    )


def _print_steps(steps: RolloutSteps, output: RolloutOutput) -> None:
    rows = step_rows(steps)
    match output:
        case RolloutOutput.TEXT:
            for line in table_lines(rows, text_width(TEXT_WIDTH)):
                typer.echo(line)
        case RolloutOutput.JSON:
            print_object({"every": steps.listing.every, "steps": [_row_object(row) for row in rows]}, OutputKind.JSON)
        case RolloutOutput.JSONL:
            for row in rows:
                typer.echo(json.dumps(_row_object(row)))


def _print_text(run: str, steps: RolloutSteps, query: RolloutQuery) -> bool:
    shown = 0
    for answer in answers(steps, query):
        typer.echo(("\n" if shown else "") + answer_text(run, answer, query, text_width(TEXT_WIDTH)))
        shown += 1
    return shown > 0


def _print_json(run: str, steps: RolloutSteps, query: RolloutQuery) -> bool:
    found: list[dict[str, Any]] = [answer_object(answer) for answer in answers(steps, query)]
    print_object(
        {"name": run, "where": steps.source.where, "every": steps.listing.every, "steps": found}, OutputKind.JSON
    )
    return bool(found)


def _print_lines(_run: str, steps: RolloutSteps, query: RolloutQuery) -> bool:
    """The same JSON as in the files, byte by byte unless a terminal could take a part of it for a command. Sorted lines
    wait in memory; others are printed while they are read.
    """
    lines = streamed(steps, query) if query.sort is None else _sorted_lines(steps, query)
    shown = 0
    for line in lines:
        sys.stdout.write(escaped_json(line.decode("utf-8", "replace")) + "\n")
        shown += 1
    sys.stdout.flush()  # here a full disk can still be told
    return shown > 0


def _sorted_lines(steps: RolloutSteps, query: RolloutQuery) -> Iterator[bytes]:
    for answer in answers(steps, query):
        yield from filter(None, (answer.step_line,))
        yield from (group.line for group in answer.groups)
        yield from (line for line, _ in answer.lost)


_PRINTERS = {RolloutOutput.TEXT: _print_text, RolloutOutput.JSON: _print_json, RolloutOutput.JSONL: _print_lines}
