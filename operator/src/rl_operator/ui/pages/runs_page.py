"""The list of runs."""

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_operator.operator_errors import ForbiddenError
from rl_operator.ui.run_rows import (
    ATTENTION,
    MOST_ROWS,
    NEEDS_ATTENTION,
    RunFilter,
    RunRow,
    filtered,
    in_order,
)
from rl_operator.ui.ui_context import asked, context_of, visitor_of


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


ROUTES = [Route("/runs", show_runs)]
