"""`rlctl rollouts`: what a run trained on, what it did not train on, and why."""

import json
import shutil
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_operator.cli.options import Output, RunName, Scope, on_target
from rl_operator.cli.printing import TEXT_WIDTH, print_object, program
from rl_operator.errors import RefusedError
from rl_operator.rollouts.choices import Fate, Figure
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.rollouts.rollout_query import RolloutQuery, RolloutSteps
    from rl_operator.rollouts.rollout_source import RolloutSource

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
    from rl_operator.api.run import TrainingRun
    from rl_operator.rollouts.rollout_query import RolloutQuery, RolloutSteps
    from rl_operator.rollouts.text_search import TextSearch

    chosen = {"--step": step, "--sort": sort, "--grep": grep or None, "--fate": fate, "--limit": limit}
    if steps and (given := [option for option, value in chosen.items() if value is not None]):
        raise RefusedError(f"--steps lists all steps, and {given[0]} chooses rollouts: give one of them")
    if ascending and sort is None:
        raise RefusedError("--ascending is about --sort: add it, like --sort reward")
    search = TextSearch.of(grep) if grep else None
    run = TrainingRun.model_validate(existing_run(scope.target, scope.namespace, name))
    source = scope.target.rollouts(run)
    known = RolloutSteps.of(source)
    if known.listing.note:
        typer.echo(f"note: {known.listing.note}", err=True)
    if not known.steps:
        raise RefusedError(_why_none(run, source, scope.target))
    if steps:
        _print_steps(source, known, output)
        return
    query = RolloutQuery(
        step=step,
        fate=fate,
        sort=sort,
        ascending=ascending,
        search=search,
        limit=limit or (SHOWN_GROUPS if output is RolloutOutput.TEXT else None),
    )
    if not _PRINTERS[output](name, source, known, query):
        typer.echo(
            f"no rollouts of run {name} ({source.where}) match; --steps lists the steps that there are", err=True
        )


def _why_none(run: "TrainingRun", source: "RolloutSource", target: Target) -> str:
    name = run.metadata.name
    if not run.status.finished:
        return f"run {name} has no rollouts in {source.where} yet: they are there when its first step is trained"
    return (
        f"run {name} has no rollouts in {source.where}: it kept none (tinker.keep_rollouts_mb is 0, or the disk was "
        f"full), or an older version trained it; `{program()} logs {name}{target.flags}` says more"
    )


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else TEXT_WIDTH


def _print_steps(source: "RolloutSource", steps: "RolloutSteps", output: RolloutOutput) -> None:
    from rl_operator.cli.views.rollout_json import row_object
    from rl_operator.cli.views.rollout_steps import table_lines
    from rl_operator.rollouts.step_table import step_rows

    rows = step_rows(source, steps)
    match output:
        case RolloutOutput.TEXT:
            for line in table_lines(rows, _width()):
                typer.echo(line)
        case RolloutOutput.JSON:
            print_object({"every": steps.listing.every, "steps": [row_object(row) for row in rows]}, Output.JSON)
        case RolloutOutput.JSONL:
            for row in rows:
                typer.echo(json.dumps(row_object(row)))


def _print_text(run: str, source: "RolloutSource", steps: "RolloutSteps", query: "RolloutQuery") -> bool:
    from rl_operator.cli.views.rollout_view import answer_text
    from rl_operator.rollouts.rollout_query import answers

    shown = 0
    for answer in answers(source, steps, query):
        typer.echo(("\n" if shown else "") + answer_text(run, answer, query, _width()))
        shown += 1
    return shown > 0


def _print_json(run: str, source: "RolloutSource", steps: "RolloutSteps", query: "RolloutQuery") -> bool:
    from rl_operator.cli.views.rollout_json import answer_object
    from rl_operator.rollouts.rollout_query import answers

    found: list[dict[str, Any]] = [answer_object(answer) for answer in answers(source, steps, query)]
    print_object({"name": run, "where": source.where, "every": steps.listing.every, "steps": found}, Output.JSON)
    return bool(found)


def _print_lines(_run: str, source: "RolloutSource", steps: "RolloutSteps", query: "RolloutQuery") -> bool:
    """The same JSON as in the files, byte by byte unless a terminal could take a part of it for a command."""
    from rl_operator.rollouts.visible_text import escaped_json

    shown = 0
    for line in _lines(source, steps, query):
        sys.stdout.write(escaped_json(line.decode("utf-8", "replace")) + "\n")
        shown += 1
    sys.stdout.flush()  # here a full disk can still be told
    return shown > 0


def _lines(source: "RolloutSource", steps: "RolloutSteps", query: "RolloutQuery") -> Iterator[bytes]:
    """Sorted ones wait in memory; others are printed while they are read."""
    from rl_operator.rollouts.rollout_query import answers, streamed

    if query.sort is None:
        yield from streamed(source, steps, query)
        return
    for answer in answers(source, steps, query):
        yield from filter(None, (answer.step_line,))
        yield from (group.line for group in answer.groups)
        yield from (line for line, _ in answer.lost)


_PRINTERS = {RolloutOutput.TEXT: _print_text, RolloutOutput.JSON: _print_json, RolloutOutput.JSONL: _print_lines}
