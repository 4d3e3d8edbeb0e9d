"""The list of runs, and a comparison of those that are chosen there."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_operator.documents.parse import parse_stored_run
from rl_operator.documents.yaml_text import flow
from rl_operator.experiments.comparison import Comparison
from rl_operator.experiments.ranking import verdicts
from rl_operator.experiments.run_figures import RunFigures, differing_settings
from rl_operator.operator_errors import ForbiddenError, RefusedError
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut
from rl_operator.targets.experiment_runs import figures
from rl_operator.targets.runs.held_out_answers import with_answers
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_text import compared_figures
from rl_operator.targets.target import Target
from rl_operator.ui.run_rows import ATTENTION, MOST_ROWS, NEEDS_ATTENTION, RunFilter, RunRow, filtered, in_order
from rl_operator.ui.ui_context import asked, context_of, visitor_of

LONGEST_VALUE: Final = 200
UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideBySide:
    figures: tuple[ComparisonRow, ...]
    settings: tuple[ComparisonRow, ...]
    verdicts: tuple[str, ...]
    """One that begins with the name of a run begins with a small letter: names have no others."""


def side_by_side_rows(rows: Sequence[RunFigures]) -> SideBySide:
    told = [compared_figures(row, UNKNOWN) for row in rows]
    figures = tuple(ComparisonRow(name, tuple(each[name] for each in told)) for name in (told[0] if told else ()))
    differing = differing_settings(rows).items()
    settings = tuple(ComparisonRow(field, tuple(map(_shown_row, values))) for field, values in differing)
    return SideBySide(figures, settings, tuple(map(_sentence, verdicts(rows))))


def _sentence(verdict: Comparison) -> str:
    said = visible(verdict.sentence)
    return f"{said if verdict.sentence.startswith(verdict.runs) else said[:1].upper() + said[1:]}."


def _shown_row(value: object) -> str:
    return cut(visible(flow(value)), LONGEST_VALUE)


FEWEST, MOST = 2, 5

Key = tuple[str, str]


async def compare_runs_page(request: Request) -> Response:
    """`?run=NAMESPACE/NAME`, two to five times."""
    named = list(dict.fromkeys(request.query_params.getlist("run")))
    if not FEWEST <= len(named) <= MOST:
        values = {"title": "Compare", "asked_for": len(named), "runs": []}
    else:
        compared = partial(_compared, visitor_of(request).target, [_key(each) for each in named])
        values = await asyncio.get_running_loop().run_in_executor(context_of(request).readers, compared)
    return context_of(request).page(request, "compare.html", {"fewest": FEWEST, "most": MOST, **values})


def _key(text: str) -> Key:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise RefusedError(f"run is {text[:100]!r}; it must be NAMESPACE/NAME")
    return namespace, name


def _compared(target: Target, keys: Sequence[Key]) -> dict[str, Any]:
    runs = [parse_stored_run(existing_run(target, *key)) for key in keys]
    several = len({namespace for namespace, _ in keys}) > 1
    return {
        "title": "Compare " + ", ".join(name for _, name in keys),
        "asked_for": len(keys),
        "runs": [
            {
                "label": f"{namespace}/{name}" if several else name,
                "path": f"{quote(namespace, safe='')}/{quote(name, safe='')}",
            }
            for namespace, name in keys
        ],
        "compared": side_by_side_rows(with_answers(target, figures(target, runs), runs)),
    }


async def show_runs(request: Request) -> Response:
    """The page, or for a script of the page only its rows: `?part=rows`."""
    chosen = RunFilter.of_query(request.query_params)
    visitor = visitor_of(request)
    try:
        rows = partial(context_of(request).rows.of, visitor.target)
        listed, only = await asked(visitor.visible, rows, chosen.namespace or None)
    except ForbiddenError as error:
        values = {"title": "Not shown", "sentence": str(error), "choose_namespace": visitor.namespace is None}
        return context_of(request).page(request, "error.html", values, 403)
    template = "runs_rows.html" if request.query_params.get("part") == "rows" else "runs.html"
    values = _values(listed, chosen, _shown(request)) | {"only_namespace": only}
    return context_of(request).page(request, template, values)


def _values(rows: list[RunRow], chosen: RunFilter, shown: int) -> dict[str, Any]:
    found = in_order(filtered(rows, chosen))
    phases = Counter(row.phase for row in rows)
    phases[NEEDS_ATTENTION] = sum(row.trouble for row in rows)
    offered = [NEEDS_ATTENTION, *(phase for phase in ATTENTION if phases[phase])]
    if chosen.phase and chosen.phase not in offered:  # a filter in force is shown
        offered.append(chosen.phase)
    given = {name: value for name in RunFilter.__slots__ if (value := getattr(chosen, name))}
    return {
        "title": "Runs",
        "chosen": chosen,
        "now": datetime.now(UTC),
        "rows": found[:shown],
        "found": len(found),
        "more": urlencode(given | {"shown": shown + MOST_ROWS}) if len(found) > shown else "",
        "total": len(rows),
        "phases": [(phase, phases[phase]) for phase in offered],
        "environments": sorted({row.environment for row in rows} | {chosen.environment} - {""}),
        "several_namespaces": len({row.namespace for row in rows}) > 1,
    }


def _shown(request: Request) -> int:
    given = request.query_params.get("shown", "")
    return min(int(given), 10_000) if given.isdecimal() and len(given) < 6 else MOST_ROWS


ROUTES = [Route("/runs", show_runs), Route("/compare", compare_runs_page)]
